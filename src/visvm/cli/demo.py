"""The whole idea in a few minutes: photos learned class by class, beside two other heads.

Run by ``visvm demo`` and ``make demo``. All heads see the same features; only the way they learn
differs. What is measured is in ``demo_results``, and ``demo_page`` makes a page of it.
"""

import os
import shutil
import sys
import webbrowser
from pathlib import Path

from rich.console import Console

from visvm.bench.flowers import CREDIT, fetch_flowers, flower_photos
from visvm.cli.demo_page import lines_to_try, write_result
from visvm.cli.demo_results import Demo, learned, planted, refused, strangers, streamed
from visvm.cli.options import can_draw
from visvm.cli.terminal import table
from visvm.encoders.files import has_content, make_folder, replacing
from visvm.image_classifier import ImageClassifier
from visvm.progress import Progress


def run(out: Console, progress: Progress, output: Path, folder: Path | None, encoder: str) -> None:
    """Learn photos in five sessions, show the accuracy after each, and write what came out.

    The photos are those in `folder`, one sub-folder per class; by default those of ten flowers.
    Everything is written to the folder `output`.
    """
    make_folder(output)
    photos = _flowers(output / "flowers", progress) if folder is None else folder
    stream = streamed(photos)
    what = f"Photos: {CREDIT}." if folder is None else f"Photos: {folder}."
    name = "flowers" if folder is None else "demo"
    out.print(what, markup=False)
    ours = ImageClassifier(encoder)
    sessions = tuple(learned(ours, stream, progress))
    model, mixed, page = (
        output / f"{name}.visvm",
        output / "mislabelled.csv",
        output / "result.html",
    )
    ours.save(model)
    checker = ImageClassifier(encoder, transform=ours.transform)
    demo = Demo(
        *(what, encoder, stream, sessions),
        *(strangers(ours, progress), refused(ours, stream, progress)),
        planted(checker, stream.train, mixed, progress),
    )
    columns, rows = demo.table
    title = f"{demo.counts}: accuracy on all classes known, and time to learn"
    out.print(table(title, columns, rows, right=columns[1:]))
    out.print("\n".join((*demo.fairness, "", *demo.answers)), markup=False)
    figure = output / "figure.png"
    drawn = "no figure: pip install 'visvm[plot]' draws one"
    if can_draw():
        from visvm.cli.demo_figure import draw_demo

        draw_demo(demo, figure)
        drawn = f"figure: {figure}"
    command = "visvm" if shutil.which("visvm") else str(Path(sys.executable).with_name("visvm"))
    lines = lines_to_try(command, model, mixed, demo)
    write_result(page, demo, figure.read_bytes() if can_draw() else b"", lines)
    out.print(f"\nmodel: {model}   {drawn}\npage:  {page}\n", markup=False)
    out.print("\n".join(("Try it:", *(f"  {line}" for line in lines))), markup=False)
    if _somebody_watches():
        webbrowser.open(page.resolve().as_uri())


def _flowers(folder: Path, progress: Progress) -> Path:
    """Write the photos of flowers as files, one folder per class."""
    for label, name, content in flower_photos(fetch_flowers(progress)):
        path = folder / label / name
        if not has_content(path, content):
            make_folder(path.parent)
            with replacing(path) as file:
                file.write(content)
    return folder


def _somebody_watches() -> bool:
    """Tell whether a person ran this at a desktop, who would like to see the page."""
    desktop = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    remote = any(os.environ.get(name) for name in ("CI", "SSH_CONNECTION"))
    return desktop and not remote and sys.stdout is not None and sys.stdout.isatty()
