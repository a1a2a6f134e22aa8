"""Rows of results → ``report.html``, ``report.md`` and figures; all of it comes from the rows."""

import os
import re
import shutil
import tempfile
from pathlib import Path

from visvm.bench.report.comparison import gather
from visvm.bench.report.pages import Picture, write_html, write_markdown
from visvm.bench.report.published import read_published
from visvm.bench.report.sections import SECTIONS
from visvm.bench.rows import FILE_NAME, Row, read_rows
from visvm.errors import InputError, shown

TITLE = "Benchmark report"


def write_report(folder: Path) -> list[Path]:
    """Write ``report.html``, ``report.md`` and ``figures/`` beside ``results.jsonl``.

    The same rows give the same bytes. Return what was written, the pages first. If anything fails,
    the old report stays.
    """
    rows = read_rows(folder)
    if not rows:
        raise InputError(
            f"{shown(folder / FILE_NAME)} has no rows. "
            f"Run 'visvm bench RECIPE --out {shown(folder)}' first.",
            code="results-empty",
        )
    files = _make_files(rows)
    try:
        _replace(folder, files)
    except OSError as error:
        raise InputError(
            f"The report cannot be written to {shown(folder)}: {error.strerror}. "
            "Make room or change the permissions, then run the command again.",
            code="report-unwritable",
        ) from error
    return [folder / name for name in files]


def _make_files(rows: list[Row]) -> dict[str, bytes]:
    """Return contents by path in the folder."""
    material = gather(rows, read_published())
    made = [section for make in SECTIONS if (section := make(material)) is not None]
    files = {
        "report.html": write_html(TITLE, made).encode(),
        "report.md": write_markdown(TITLE, made).encode(),
    }
    for block in (block for section in made for block in section.blocks):
        if isinstance(block, Picture):
            files[f"figures/{block.name}.svg"] = block.drawing.svg.encode()
            files[f"figures/{block.name}.png"] = block.drawing.png
    return files


def _replace(folder: Path, files: dict[str, bytes]) -> None:
    """Replace old files once all new ones are on the disk; pages last, as they show the figures.

    Figures that the old page showed and the new one does not are removed; other files are left.
    """
    page = folder / "report.md"
    old = page.read_text("utf-8", errors="replace") if page.exists() else ""
    names = re.findall(r"\(figures/([\w.-]+)\.png\)$", old, re.MULTILINE)
    stale = {f"figures/{name}.{kind}" for name in names for kind in ("png", "svg")} - files.keys()
    aside = Path(tempfile.mkdtemp(prefix=".report-", dir=folder))
    try:
        for name, content in files.items():
            (aside / name).parent.mkdir(exist_ok=True)
            (aside / name).write_bytes(content)
        (folder / "figures").mkdir(exist_ok=True)
        for name in reversed(files):
            os.replace(aside / name, folder / name)
        for name in stale:
            (folder / name).unlink(missing_ok=True)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
