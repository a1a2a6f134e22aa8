"""A page of photos in one file: no network, no script, in light and dark.

``visvm check --html``, ``visvm evaluate --html`` and ``visvm demo`` write it.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image

from visvm.encoders.encoder import Preprocessing
from visvm.encoders.files import replacing
from visvm.encoders.images import decode
from visvm.encoders.sources import as_source, content_of
from visvm.encoders.transform import Transform
from visvm.errors import ImageError, escaped

MOST = 300
"""So many photos, at most, are shown in a section; the file would grow too large."""

_SIDE = 176
_TILE = Transform("crop", Preprocessing(_SIDE, _SIDE, (0.0,) * 3, (1.0,) * 3))
_QUALITY = 82

_STYLE = """
:root { color-scheme: light dark; --page: #f6f7f5; --card: #fff; --text: #1b211f;
  --muted: #56605c; --line: #dde2de; --accent: #1b6b58; --bad: #a3261b; }
@media (prefers-color-scheme: dark) { :root { --page: #121615; --card: #1a1f1d;
  --text: #e9eeeb; --muted: #a4afaa; --line: #2e3633; --accent: #74cbb0; --bad: #ffa198; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); overflow-wrap: anywhere;
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 76rem; margin: auto; padding: clamp(1rem, 4vw, 2.5rem); }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; letter-spacing: -.015em; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .25rem; }
p { margin: 0; } .muted { color: var(--muted); max-width: 50rem; }
ul.facts { margin: 1rem 0 0; padding: 0; list-style: none; display: flex; flex-wrap: wrap;
  gap: .5rem; }
.facts li { background: var(--card); border: 1px solid var(--line); border-radius: 99px;
  padding: .2rem .8rem; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: 1rem;
  margin-top: 1rem; }
.group { grid-column: 1 / -1; display: flex; flex-wrap: wrap; gap: 1rem; padding: .75rem;
  border: 1px solid var(--line); border-radius: 14px; }
.group figure { width: 13rem; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  overflow: hidden; }
figure img, .none { display: block; width: 100%; aspect-ratio: 1; object-fit: cover;
  background: var(--line); }
.none { display: grid; place-items: center; color: var(--muted); font-size: .875rem; }
figcaption { padding: .6rem .75rem .75rem; font-size: .9rem; line-height: 1.4; }
figcaption b { display: block; } .was { color: var(--bad); } .is { color: var(--accent); }
.path { display: block; margin-top: .25rem; color: var(--muted); font-size: .78rem; }
.scroll { overflow-x: auto; margin-top: 1rem; }
table { border-collapse: collapse; background: var(--card); border: 1px solid var(--line);
  font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .9rem; text-align: left; border-bottom: 1px solid var(--line); }
th { font-weight: 600; } .number { text-align: right; }
img.drawn { display: block; width: 100%; max-width: 60rem; margin-top: 1rem; background: #fff;
  border: 1px solid var(--line); border-radius: 12px; }
pre { margin: 1rem 0 0; padding: .75rem 1rem; overflow-x: auto; background: var(--card);
  border: 1px solid var(--line); border-radius: 12px; font-size: .88rem; line-height: 1.7; }
footer { margin-top: 3rem; color: var(--muted); font-size: .85rem; }
"""


@dataclass(frozen=True)
class PhotoCard:
    """A photo and what is said of it: what it was called, what it looks like, and more."""

    path: str
    was: str = ""
    looks: str = ""
    more: str = ""


@dataclass(frozen=True)
class PhotoSection:
    """A part of a page: a drawing, tables, commands, and photos, in groups where they belong.

    Attributes
    ----------
    title, lead : str
    groups : sequence of sequences of PhotoCard
    columns : sequence of str
        Of a table; those after the first `n_texts` hold numbers.
    rows : sequence of sequences
    n_texts : int
    drawing, alt : bytes, str
        A figure as PNG, and what it shows for those who do not see it.
    commands : sequence of str
        Lines for a terminal.
    """

    title: str
    lead: str = ""
    groups: Sequence[Sequence[PhotoCard]] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    n_texts: int = 1
    drawing: bytes = b""
    alt: str = ""
    commands: Sequence[str] = ()

    @property
    def shows(self) -> bool:
        """Whether there is anything in it."""
        return bool(self.groups or self.rows or self.drawing or self.commands)


def write_page(
    path: Path, title: str, lead: str, facts: Sequence[str], parts: Sequence[PhotoSection]
) -> None:
    """Write a page in one step; parts with nothing to show are left out."""
    body = "".join(_section(part) for part in parts if part.shows)
    chips = "".join(f"<li>{_text(fact)}</li>" for fact in facts)
    content = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "img-src data:; style-src 'unsafe-inline'\">"
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body><main>"
        f'<h1>{_text(title)}</h1><p class="muted">{_text(lead)}</p>'
        f'<ul class="facts">{chips}</ul>{body}'
        "<footer>Written by visvm. The photos in this file are small copies: keep it as you keep "
        "them.</footer></main></body></html>\n"
    )
    with replacing(path) as file:
        file.write(content.encode())


def _section(part: PhotoSection) -> str:
    shown = part.groups[:MOST]
    hidden = len(part.groups) - len(shown)
    more = f'<p class="muted">and {hidden} more</p>' if hidden else ""
    grid = "".join(map(_group, shown))
    grid = f'<div class="grid">{grid}</div>{more}' if grid else ""
    lead = f'<p class="muted">{_text(part.lead)}</p>' if part.lead else ""
    drawn = f'<img class="drawn" alt="{_text(part.alt)}" src="data:image/png;base64,'
    drawn = f'{drawn}{base64.b64encode(part.drawing).decode()}">' if part.drawing else ""
    lines = "\n".join(map(_text, part.commands))
    lines = f"<pre>{lines}</pre>" if lines else ""
    inside = f"{lead}{drawn}{_table(part)}{lines}{grid}"
    return f"<section><h2>{_text(part.title)}</h2>{inside}</section>"


def _group(cards: Sequence[PhotoCard]) -> str:
    drawn = "".join(map(_card, cards))
    return drawn if len(cards) == 1 else f'<div class="group">{drawn}</div>'


def _card(card: PhotoCard) -> str:
    path = Path(card.path)
    name = "/".join(path.parts[-2:])
    said = [
        f'<b class="{kind}">{_text(text)}</b>'
        for kind, text in (("was", card.was), ("is", card.looks))
        if text
    ]
    if card.more:
        said.append(f"<span>{_text(card.more)}</span>")
    picture = thumbnail(card.path)
    drawn = '<div class="none">no picture</div>'
    if picture is not None:
        data = base64.b64encode(picture).decode()
        drawn = f'<img alt="{_text(name)}" src="data:image/jpeg;base64,{data}">'
    return (
        f"<figure>{drawn}<figcaption>{''.join(said)}"
        f'<span class="path" title="{_text(card.path)}">{_text(name)}</span></figcaption></figure>'
    )


def _table(part: PhotoSection) -> str:
    if not part.rows:
        return ""

    def cells(row: Sequence[object], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=number' if place >= part.n_texts else ''}>{_text(cell)}</{tag}>"
            for place, cell in enumerate(row)
        )

    rows = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in part.rows)
    head = f"<thead><tr>{cells(part.columns, 'th')}</tr></thead>"
    return f'<div class="scroll"><table>{head}<tbody>{rows}</tbody></table></div>'


def _text(value: object) -> str:
    return escape(escaped(str(value)))


def thumbnail(path: str) -> bytes | None:
    """Return a small square picture of a photo, as a JPEG; None if it cannot be read."""
    try:
        pixels = decode(content_of(as_source(path)), _TILE)
    except (OSError, ImageError):
        return None
    squares = np.rint(pixels.transpose(1, 2, 0) * 255.0).clip(0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(squares).save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()
