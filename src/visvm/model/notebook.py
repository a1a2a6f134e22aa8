"""Tables as a notebook shows them."""

from collections.abc import Sequence
from html import escape

_MOST = 20


def html_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in HTML, of twenty rows at most; nothing in it is taken for HTML.

    Examples
    --------
    >>> "&lt;b&gt;" in html_table("classes", ["class"], [["<b>"]])
    True
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>"
        for row in rows[:_MOST]
    )
    more = f"<p>… and {len(rows) - _MOST} more</p>" if len(rows) > _MOST else ""
    caption = f"<caption>{escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
