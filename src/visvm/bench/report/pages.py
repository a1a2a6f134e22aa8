"""A report as text, tables and figures, and how it is written as one HTML page and as Markdown."""

import html
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from visvm.bench.report.style import Drawing
from visvm.bench.report.summary import Mark

_WIDE = 450  # typographic points; a wider figure has no neighbour


@dataclass(frozen=True)
class Cell:
    """What stands in a place of a table; `aside` is smaller and behind it: the published number."""

    text: str
    mark: Mark = ""
    aside: str = ""


@dataclass(frozen=True)
class Column:
    """A column's name, the group of neighbours it belongs to, and whether it holds words."""

    name: str
    group: str = ""
    words: bool = False


@dataclass(frozen=True)
class TableRow:
    """A row: an ordinary one, ours, or one below a rule because it is no competitor ("apart")."""

    cells: tuple[Cell, ...]
    kind: Literal["", "ours", "apart"] = ""


@dataclass(frozen=True)
class Table:
    """A table; rows of the kind "apart" come last."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]


def text_table(caption: str, header: Sequence[str], lines: Iterable[Sequence[str]]) -> Table:
    """Make a table of texts."""
    rows = tuple(TableRow(tuple(map(Cell, line))) for line in lines)
    return Table(caption, tuple(Column(name, words=True) for name in header), rows)


@dataclass(frozen=True)
class Picture:
    """A figure under a file name without ending; screen readers read its caption."""

    name: str
    caption: str
    drawing: Drawing


Block = str | Table | Picture


@dataclass(frozen=True)
class Section:
    """A heading and what comes below it; a text is a paragraph."""

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """What a link to it says, as GitHub makes it from the title."""
        return re.sub(r"[^\w\- ]", "", self.title.lower()).replace(" ", "-")


def section(title: str, intro: str, blocks: Sequence[Block]) -> Section | None:
    """Make a section of these blocks and an introduction; None where there are no blocks."""
    return Section(title, [intro, *blocks]) if blocks else None


def write_html(title: str, sections: Sequence[Section]) -> str:
    """Write one page that needs nothing else: styles and figures are in it."""
    contents = "".join(
        f'<li><a href="#{each.anchor}">{html.escape(each.title)}</a></li>' for each in sections
    )
    body = "".join(
        f'<section id="{each.anchor}">\n<h2>{html.escape(each.title)}</h2>\n'
        f"{_html_blocks(each.blocks)}</section>\n"
        for each in sections
    )
    style = files("visvm.bench.report").joinpath("report.css").read_text("utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f'<h1>{html.escape(title)}</h1>\n<nav aria-label="Contents"><ol>{contents}</ol></nav>\n'
        f"<main>\n{body}</main>\n</body>\n</html>\n"
    )


def _html_blocks(blocks: Sequence[Block]) -> str:
    """Write blocks; figures that follow one another stand side by side where there is room."""
    written = []
    for pictures, run in itertools.groupby(blocks, lambda block: isinstance(block, Picture)):
        texts = "".join(map(_html_block, run))
        written.append(f'<div class="figures">\n{texts}</div>\n' if pictures else texts)
    return "".join(written)


def _html_block(block: Block) -> str:
    match block:
        case str():
            return f"<p>{_html(block)}</p>\n"
        case Table():
            return _html_table(block)
        case Picture():
            kind = " class=wide" if _width(block.drawing) > _WIDE else ""
            caption = f"<figcaption>{_html(block.caption)}</figcaption>"
            return f'<figure{kind}><div class="scroll">{_inline(block)}</div>{caption}</figure>\n'


def _html_table(table: Table) -> str:
    # published numbers have places of their own
    spans = [1 + any(row.cells[n].aside for row in table.rows) for n in range(len(table.columns))]
    lines = [f'<div class="scroll"><table>\n<caption>{_html(table.caption)}</caption>\n<thead>\n']
    both = list(zip(table.columns, spans, strict=True))
    if any(column.group for column in table.columns):
        cells = []
        for group, run in itertools.groupby(both, lambda pair: pair[0].group):
            kind = " class=group scope=colgroup" if group else ""
            width = sum(span for _, span in run)
            cells.append(f"<th colspan={width}{kind}>{html.escape(group)}</th>")
        lines.append(f"<tr>{''.join(cells)}</tr>\n")
    names = (
        f"<th scope=col colspan={span}{_kind(column)}>{_html(column.name)}</th>"
        for column, span in both
    )
    lines.append(f"<tr>{''.join(names)}</tr>\n</thead>\n")
    for apart, rows in itertools.groupby(table.rows, lambda row: row.kind == "apart"):
        body = "".join(_html_row(row, table.columns, spans) for row in rows)
        lines.append(f"<tbody{' class=apart' if apart else ''}>\n{body}</tbody>\n")
    return "".join(lines) + "</table></div>\n"


def _html_row(row: TableRow, columns: Sequence[Column], spans: Sequence[int]) -> str:
    written = []
    for place, (cell, column, span) in enumerate(zip(row.cells, columns, spans, strict=True)):
        tag = {"best": "strong", "second": "u", "": ""}[cell.mark]
        text = html.escape(cell.text)
        text = f"<{tag}>{text}</{tag}>" if tag else text
        written.append(f"<td{_kind(column)}>{text}</td>" if place else f"<th scope=row>{text}</th>")
        if span > 1:
            aside = f"({html.escape(cell.aside)})" if cell.aside else ""
            written.append(f"<td class=aside>{aside}</td>")
    return f"<tr{' class=ours' if row.kind == 'ours' else ''}>{''.join(written)}</tr>\n"


def _kind(column: Column) -> str:
    return " class=words" if column.words else ""


def _html(text: str) -> str:
    """Escape our own words."""
    return _with_indices(html.escape(text))


def _inline(picture: Picture) -> str:
    """Make the SVG a part of a page: no declarations, and names that no other figure has."""
    svg = picture.drawing.svg[picture.drawing.svg.index("<svg") :].replace("xlink:href", "href")
    left_out = r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>|\s+xmlns(:xlink)?=\"[^\"]*\""
    svg = re.sub(left_out, "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{picture.name}-", svg)
    label = f'role="img" aria-label="{html.escape(picture.caption)}"'
    width = f'style="min-width: min(27rem, {_width(picture.drawing):g}pt)"'
    return svg.replace("<svg", f"<svg {label} {width}", 1).strip()


def _width(drawing: Drawing) -> float:
    """Return the width of a figure in typographic points."""
    found = re.search(r'<svg[^>]* width="([\d.]+)pt"', drawing.svg)
    return float(found[1]) if found else 0.0


def write_markdown(title: str, sections: Sequence[Section]) -> str:
    """Write the same for GitHub; figures are referred to as ``figures/NAME.png``."""
    contents = "\n".join(f"- [{_escaped(each.title)}](#{each.anchor})" for each in sections)
    parts = [f"# {_escaped(title)}", contents]
    for each in sections:
        parts.append(f"## {_escaped(each.title)}")
        for block in each.blocks:
            match block:
                case str():
                    parts.append(_markdown(block))
                case Table():
                    parts += [f"**{_markdown(block.caption)}**", _markdown_table(block)]
                case Picture():
                    alternative = f"![{_escaped(block.caption)}](figures/{block.name}.png)"
                    parts += [alternative, _markdown(block.caption)]
    return "\n\n".join(parts) + "\n"


def _markdown_table(table: Table) -> str:
    names = (_markdown(f"{column.group} {column.name}".strip()) for column in table.columns)
    rule = (
        ":---" if place == 0 or column.words else "---:"
        for place, column in enumerate(table.columns)
    )
    lines = (names, rule, *map(_markdown_cells, table.rows))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _markdown_cells(row: TableRow) -> Iterator[str]:
    around = {"best": ("**", "**"), "second": ("<u>", "</u>"), "": ("", "")}
    for place, cell in enumerate(row.cells):
        before, after = ("*", "*") if row.kind == "apart" and place == 0 else around[cell.mark]
        aside = f" ({_escaped(cell.aside)})" if cell.aside else ""
        yield f"{before}{_escaped(cell.text)}{after}{aside}".strip()


def _markdown(text: str) -> str:
    """Escape our own words."""
    return _with_indices(_escaped(text))


def _escaped(text: str) -> str:
    """Escape what Markdown would not take as plain text, in a table too."""
    line = re.sub(r"[^\S\N{NO-BREAK SPACE}]+", " ", text)
    return re.sub(r"([\\`*_\[\]|~#$])", r"\\\1", html.escape(line, quote=False))


def _with_indices(text: str) -> str:
    """Write A_B and F_B with an index; for our own words, never for names."""
    return re.sub(r"\b([AF])\\?_B\b", r"\1<sub>B</sub>", text)
