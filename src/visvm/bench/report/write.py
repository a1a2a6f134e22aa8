"""Rows of results → ``report.html``, ``report.md`` and the figures: everything is worked out from the rows alone."""

import os
import re
import shutil
import tempfile
from pathlib import Path

from visvm.bench.report import sections, sections_analysis
from visvm.bench.report.comparison import gather
from visvm.bench.report.pages import Picture, write_html, write_markdown
from visvm.bench.report.published import read_published
from visvm.bench.rows import FILE_NAME, Row, read_rows
from visvm.errors import InputError

TITLE = "Benchmark report"

_SECTIONS = (
    sections.what_was_run,
    sections.main_table,
    sections.curves,
    sections.ablation,
    sections.classifiers,
    sections_analysis.sensitivities,
    sections_analysis.class_orders,
    sections_analysis.random_features,
    sections.backbones,
    sections.forgetting,
    sections.old_and_new,
    sections.choices,
    sections_analysis.trade_offs,
    sections_analysis.overhead,
    sections_analysis.confused_classes,
    sections.other_runs,
)


def write_report(folder: Path) -> list[Path]:
    """Write ``report.html``, ``report.md`` and ``figures/`` into a folder of results; the same rows give the same bytes.

    Parameters
    ----------
    folder : Path
        Holds ``results.jsonl``.

    Returns
    -------
    list of Path
        What was written, the pages first. Whatever fails on the way leaves what was there before.
    """
    rows = read_rows(folder)
    if not rows:
        raise InputError(
            f"{folder / FILE_NAME} must hold rows; it holds none: run 'visvm bench RECIPE --out {folder}' first"
        )
    files = _make_files(rows)
    try:
        _replace(folder, files)
    except OSError as error:
        raise InputError(
            f"{folder} must be a folder that can be written to; it is not ({error.strerror}): change that"
        ) from error
    return [folder / name for name in files]


def _make_files(rows: list[Row]) -> dict[str, bytes]:
    """Contents by path in the folder."""
    material = gather(rows, read_published())
    made = [section for make in _SECTIONS if (section := make(material)) is not None]
    files = {
        "report.html": write_html(TITLE, made).encode(),
        "report.md": write_markdown(TITLE, made).encode(),
    }
    for picture in (
        block for section in made for block in section.blocks if isinstance(block, Picture)
    ):
        files[f"figures/{picture.name}.svg"] = picture.drawing.svg.encode()
        files[f"figures/{picture.name}.png"] = picture.drawing.png
    return files


def _replace(folder: Path, files: dict[str, bytes]) -> None:
    """Put files in the place of old ones when all of them are on the disk; the pages last, as they refer to the figures.

    Figures that the old page showed and the new one does not are removed; what it did not show is
    left.
    """
    old_page = folder / "report.md"
    shown = (
        re.findall(
            r"\(figures/([\w.-]+)\.png\)$",
            old_page.read_text("utf-8", errors="replace"),
            re.MULTILINE,
        )
        if old_page.exists()
        else []
    )
    aside = Path(tempfile.mkdtemp(prefix=".report-", dir=folder))
    try:
        for name, content in files.items():
            (aside / name).parent.mkdir(exist_ok=True)
            (aside / name).write_bytes(content)
        (folder / "figures").mkdir(exist_ok=True)
        for name in reversed(files):
            os.replace(aside / name, folder / name)
        for stale in {
            f"figures/{name}.{kind}" for name in shown for kind in ("png", "svg")
        } - files.keys():
            (folder / stale).unlink(missing_ok=True)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
