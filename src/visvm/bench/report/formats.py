"""Numbers and names as pages and figures write them."""

import math


def count(number: int) -> str:
    """Return a whole number with its thousands apart, by spaces at which no line breaks."""
    return f"{number:,}".replace(",", "\N{NO-BREAK SPACE}")


def signed(points: float) -> str:
    """Return a difference to two decimals, with its sign; the minus is a true one.

    Examples
    --------
    >>> signed(5.0), signed(-5.0)
    ('+5.00', '−5.00')
    """
    return f"{points:+.2f}".replace("-", "−")


def plain(value: float) -> str:
    """Return a number as people write it.

    Examples
    --------
    >>> plain(0), plain(1e-4), plain(0.01), plain(15000)
    ('0', '1e-4', '0.01', '15 000')
    """
    if 0 < abs(value) < 1e-2:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value:,.12g}".replace(",", " ")


def digits(value: float) -> str:
    """Return a number with three significant digits, without an exponent.

    Examples
    --------
    >>> digits(0), digits(0.01234), digits(1.5), digits(12.34), digits(123456.7)
    ('0', '0.0123', '1.50', '12.3', '123 457')
    """
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(float(f"{abs(value):.2e}"))))
    return f"{value:,.{decimals}f}".replace(",", " ")


def short_count(number: float, unit: str = "") -> str:
    """Return a round number with a unit.

    Examples
    --------
    >>> short_count(0), short_count(1000), short_count(10**7), short_count(1.5e9, "B")
    ('0', '1 k', '10 M', '1.5 GB')
    """
    place = min(3, max(0, int(math.log10(number)) // 3)) if number else 0
    return f"{number / 1000**place:.3g} {('', 'k', 'M', 'G')[place]}{unit}".strip()


def shortened(label: object, most: int) -> str:
    """Return a label cut to at most this many characters.

    Examples
    --------
    >>> shortened("nightingale", 6), shortened("wren", 6)
    ('night…', 'wren')
    """
    text = str(label)
    return text if len(text) <= most else f"{text[: most - 1]}…"
