"""Numbers as the command line, pages and figures write them."""


def percent(share: float | None, decimals: int = 1, unit: str = " %") -> str:
    """Return a share in percent, or a dash where there is none.

    Examples
    --------
    >>> percent(0.875), percent(0.875, 2, ""), percent(None)
    ('87.5 %', '87.50', '–')
    """
    return "–" if share is None else f"{100 * share:.{decimals}f}{unit}"
