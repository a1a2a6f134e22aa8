"""Sections of a report as they are written."""

import re

from tests.bench.make_rows import make_rows, make_run
from visvm.bench.report.comparison import gather
from visvm.bench.report.pages import write_html, write_markdown
from visvm.bench.report.published import read_published

CLIP = {"encoder": "w/vit_b_16-laion400m_e32-55e67d44.pt", "weights_digest": "7" * 64}


def both(make, *streams, **changes):
    """A section of (method or run, accuracies), as HTML and as Markdown."""
    rows = [
        row
        for run, accuracies in streams
        for row in make_rows(make_run(run, **changes) if isinstance(run, str) else run, accuracies)
    ]
    section = make(gather(rows, read_published()))
    return write_html("t", [section]), write_markdown("t", [section])


def markdown_row(markdown, name):
    (line,) = (
        line for line in markdown.splitlines() if re.match(rf"\| \*?{re.escape(name)}\*? \|", line)
    )
    return [cell.strip() for cell in line.strip("|").split("|")][1:]
