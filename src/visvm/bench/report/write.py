"""Rows of results → ``report.html``, ``report.md`` and figures: from rows and diagnoses alone."""

import re
from contextlib import suppress
from pathlib import Path

from visvm.bench.diagnoses import Diagnosis, read_diagnoses
from visvm.bench.report.comparison import gather
from visvm.bench.report.pages import Picture, write_html, write_markdown
from visvm.bench.report.published import read_published
from visvm.bench.report.sections import SECTIONS
from visvm.bench.report.sections.diagnosis import diagnosis
from visvm.bench.rows import FILE_NAME, Row, read_rows
from visvm.encoders.files import flush_folder, part_of, written
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
    files = _make_files(rows, read_diagnoses(folder))
    try:
        _replace(folder, files)
    except OSError as error:
        raise InputError(
            f"The report cannot be written to {shown(folder)}: {error.strerror}. "
            "Make room or change the permissions, then run the command again.",
            code="report-unwritable",
        ) from error
    return [folder / name for name in files]


def _make_files(rows: list[Row], diagnoses: list[Diagnosis]) -> dict[str, bytes]:
    """Return contents by path in the folder."""
    material = gather(rows, read_published())
    made = [section for make in SECTIONS if (section := make(material)) is not None]
    made += [section] if (section := diagnosis(diagnoses)) is not None else []
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

    Figures that the old page showed and the new one does not are removed before that, so that a
    kill leaves a page that names them; other files are left.
    """
    figures, pages = folder / "figures", [name for name in files if "/" not in name]
    drawn = [name for name in files if "/" in name]
    figures.mkdir(exist_ok=True)
    parts = {folder / name: part_of(folder / name) for name in files}
    for left in {*folder.glob(".report.*.part"), *figures.glob(".*.part")}:  # by a kill
        left.unlink(missing_ok=True)
    try:
        for name, content in files.items():
            with written(parts[folder / name]) as file:
                file.write(content)
        for name in drawn:
            parts[folder / name].replace(folder / name)
        for name in sorted(_figures_of(folder / "report.md") - files.keys()):
            (folder / name).unlink(missing_ok=True)
        flush_folder(figures)
        for name in reversed(pages):
            parts[folder / name].replace(folder / name)
        flush_folder(folder)
    except OSError:
        for part in parts.values():
            with suppress(OSError):
                part.unlink(missing_ok=True)
        raise


def _figures_of(page: Path) -> set[str]:
    """Return the names of the figures that a page shows."""
    text = page.read_text("utf-8", errors="replace") if page.exists() else ""
    names = re.findall(r"\(figures/([\w.-]+)\.png\)$", text, re.MULTILINE)
    return {f"figures/{name}.{kind}" for name in names for kind in ("png", "svg")}
