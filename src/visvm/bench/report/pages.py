"""A report as text, tables and figures; and how these are written as one HTML page and as Markdown."""

import html
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from visvm.bench.report.plots import Drawing
from visvm.bench.report.summary import Mark

_WIDE = 450  # typographic points; a wider figure has no neighbour


@dataclass(frozen=True)
class Cell:
    """What stands in a place of a table.

    Parameters
    ----------
    text : str
    mark : Mark
        Best, second, or neither.
    aside : str
        Smaller, behind it: the published number.
    """

    text: str
    mark: Mark = ""
    aside: str = ""


@dataclass(frozen=True)
class Column:
    """A column's name, the name of the group of neighbours it belongs to, and whether it holds words, not numbers."""

    name: str
    group: str = ""
    words: bool = False


@dataclass(frozen=True)
class TableRow:
    """A line of a table: an ordinary one, ours, or one that stands below a rule because it is no competitor."""

    cells: tuple[Cell, ...]
    kind: Literal["", "ours", "apart"] = ""


@dataclass(frozen=True)
class Table:
    """A table; rows of the kind "apart" come last."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]


@dataclass(frozen=True)
class Picture:
    """A figure under a file name without ending; the caption is also what is read to those who cannot see it."""

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


def write_html(title: str, sections: Sequence[Section]) -> str:
    """One page that needs nothing else: styles and figures are in it."""
    contents = "".join(
        f'<li><a href="#{each.anchor}">{_html(each.title)}</a></li>' for each in sections
    )
    body = "".join(
        f'<section id="{each.anchor}">\n<h2>{_html(each.title)}</h2>\n{_html_blocks(each)}</section>\n'
        for each in sections
    )
    style = files("visvm.bench.report").joinpath("report.css").read_text("utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_html(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f'<h1>{_html(title)}</h1>\n<nav aria-label="Contents"><ol>{contents}</ol></nav>\n'
        f"<main>\n{body}</main>\n</body>\n</html>\n"
    )


def write_markdown(title: str, sections: Sequence[Section]) -> str:
    """The same for GitHub; figures are referred to as ``figures/NAME.png``."""
    parts = [
        f"# {_markdown(title)}",
        "\n".join(f"- [{_markdown(each.title)}](#{each.anchor})" for each in sections),
    ]
    for section in sections:
        parts.append(f"## {_markdown(section.title)}")
        for block in section.blocks:
            match block:
                case str():
                    parts.append(_with_indices(_markdown(block)))
                case Table():
                    parts += [
                        _with_indices(f"**{_markdown(block.caption)}**"),
                        _markdown_table(block),
                    ]
                case Picture():
                    caption = _markdown(block.caption)
                    parts += [f"![{caption}](figures/{block.name}.png)", _with_indices(caption)]
    return "\n\n".join(parts) + "\n"


def _html_blocks(section: Section) -> str:
    """The blocks of a section; figures that follow one another stand side by side where there is room."""
    written = []
    for pictures, blocks in itertools.groupby(
        section.blocks, lambda block: isinstance(block, Picture)
    ):
        texts = [_html_block(block) for block in blocks]
        written += ['<div class="figures">\n', *texts, "</div>\n"] if pictures else texts
    return "".join(written)


def _html_block(block: Block) -> str:
    match block:
        case str():
            return f"<p>{_with_indices(_html(block))}</p>\n"
        case Table():
            return _html_table(block)
        case Picture():
            caption = _with_indices(_html(block.caption))
            start = "<figure class=wide>" if _width(block.drawing) > _WIDE else "<figure>"
            return f'{start}<div class="scroll">{_inline(block)}</div><figcaption>{caption}</figcaption></figure>\n'


def _html_table(table: Table) -> str:
    spans = [
        1 + any(row.cells[place].aside for row in table.rows) for place in range(len(table.columns))
    ]  # published: own places
    lines = [
        f'<div class="scroll"><table>\n<caption>{_with_indices(_html(table.caption))}</caption>\n<thead>\n'
    ]
    if any(column.group for column in table.columns):
        cells = []
        for group, run in itertools.groupby(
            zip(table.columns, spans, strict=True), lambda pair: pair[0].group
        ):
            kind = " class=group scope=colgroup" if group else ""
            cells.append(f"<th colspan={sum(span for _, span in run)}{kind}>{_html(group)}</th>")
        lines.append(f"<tr>{''.join(cells)}</tr>\n")
    names = (
        f"<th scope=col colspan={span}{_kind(column)}>{_with_indices(_html(column.name))}</th>"
        for column, span in zip(table.columns, spans, strict=True)
    )
    lines.append(f"<tr>{''.join(names)}</tr>\n</thead>\n")
    for kind, rows in itertools.groupby(
        table.rows, lambda row: "apart" if row.kind == "apart" else ""
    ):
        lines.append(f"<tbody{' class=apart' if kind else ''}>\n")
        lines += [_html_row(row, table.columns, spans) for row in rows]
        lines.append("</tbody>\n")
    return "".join(lines) + "</table></div>\n"


def _html_row(row: TableRow, columns: Sequence[Column], spans: Sequence[int]) -> str:
    written = []
    for place, (cell, column, span) in enumerate(zip(row.cells, columns, spans, strict=True)):
        tag = {"best": "strong", "second": "u", "": ""}[cell.mark]
        text = f"<{tag}>{_html(cell.text)}</{tag}>" if tag else _html(cell.text)
        written.append(f"<td{_kind(column)}>{text}</td>" if place else f"<th scope=row>{text}</th>")
        if span > 1:
            written.append(f"<td class=aside>{f'({_html(cell.aside)})' if cell.aside else ''}</td>")
    return f"<tr{' class=ours' if row.kind == 'ours' else ''}>{''.join(written)}</tr>\n"


def _kind(column: Column) -> str:
    return " class=words" if column.words else ""


def _markdown_table(table: Table) -> str:
    def line(cells: Iterator[str]) -> str:
        return f"| {' | '.join(cells)} |"

    names = (
        _with_indices(_markdown(f"{column.group} {column.name}".strip()))
        for column in table.columns
    )
    rule = (
        ":---" if place == 0 or column.words else "---:"
        for place, column in enumerate(table.columns)
    )
    rows = (line(_markdown_cells(row)) for row in table.rows)
    return "\n".join([line(names), line(rule), *rows])


def _markdown_cells(row: TableRow) -> Iterator[str]:
    around = {"best": ("**", "**"), "second": ("<u>", "</u>"), "": ("", "")}
    for place, cell in enumerate(row.cells):
        before, after = ("*", "*") if row.kind == "apart" and place == 0 else around[cell.mark]
        aside = f" ({_markdown(cell.aside)})" if cell.aside else ""
        yield f"{before}{_markdown(cell.text)}{after}{aside}".strip()


def _html(text: str) -> str:
    return html.escape(text)


def _markdown(text: str) -> str:
    """Plain text that Markdown takes as plain text, in a table too."""
    line = re.sub(r"[^\S\N{NO-BREAK SPACE}]+", " ", text)
    return re.sub(r"([\\`*_\[\]|~#$])", r"\\\1", html.escape(line, quote=False))


def _with_indices(text: str) -> str:
    """A_B and F_B as one writes them; for our own words, never for names."""
    return re.sub(r"\b([AF])\\?_B\b", r"\1<sub>B</sub>", text)


def _inline(picture: Picture) -> str:
    """The SVG as a part of an HTML page: no declarations, and names that no other figure of the page has."""
    svg = picture.drawing.svg[picture.drawing.svg.index("<svg") :]
    svg = re.sub(
        r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>|\s+xmlns(:xlink)?=\"[^\"]*\"",
        "",
        svg,
        flags=re.DOTALL,
    )
    svg = re.sub(
        r'(\bid="|url\(#|href="#)', rf"\g<1>{picture.name}-", svg.replace("xlink:href", "href")
    )
    shown = f'role="img" aria-label="{_html(picture.caption)}" style="min-width: min(27rem, {_width(picture.drawing):g}pt)"'
    return svg.replace("<svg", f"<svg {shown}", 1).strip()


def _width(drawing: Drawing) -> float:
    """In typographic points."""
    found = re.search(r'<svg[^>]* width="([\d.]+)pt"', drawing.svg)
    return float(found[1]) if found else 0.0
