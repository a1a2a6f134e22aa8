"""The exported ONNX file beside `visvm predict`: labels, probabilities, size, time, precision.

    python benchmarks/export.py --data DATA [--classes 100] [--images 1000] [PART…]

Learns CUB-200 birds from ten of the training photos of each class, and asks about test photos, so
that features which are in the cache serve: only the exported files encode anew. As these photos
are as large as the encoder's square, the part *resized* asks about them as 500 × 375 pixels. Each
part is kept in export.json when it is done, and all that is kept is put into EXPORT.md. With
--work, what was cut off goes on where it was.
"""

import argparse
import functools
import http.server
import json
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic
from PIL import Image

from visvm import ImageClassifier

HERE = Path(__file__).parent
LEARNED = 10  # photos of a class
BATCH = 8  # as that of predict
PRECISIONS = ("float32", "float16", "int8")
DYNAMIC = "int8 products"
PAGES, PAGE_PHOTOS = ("page int8", "page float16"), 20
RESIZED, SIDES = "float32 resized", (500, 375)  # as photos of CUB were before they were made square
KEPT = HERE / "export.json"


def photos(data, n_classes):
    """Return the photos to learn and those to ask about, by class."""
    folders = sorted(path for path in (data / "cub200/train").iterdir() if path.is_dir())
    learned = [path for each in folders[:n_classes] for path in sorted(each.iterdir())[:LEARNED]]
    others = [data / "cub200/test" / each.name for each in folders[:n_classes]]
    return learned, [path for each in others for path in sorted(each.iterdir())]


def spaced(paths, n):
    """Return n of the paths, evenly spaced; all of them if they are fewer."""
    return [paths[place * len(paths) // n] for place in range(n)] if n < len(paths) else paths


def resized(paths, folder):
    """Return copies of photos that have to be resized."""
    folder.mkdir(exist_ok=True)
    for path in paths:
        copy = folder / f"{path.parent.name}/{path.stem}.png"
        copy.parent.mkdir(exist_ok=True)
        Image.open(path).convert("RGB").resize(SIDES, Image.Resampling.BICUBIC).save(copy)
    return [folder / f"{path.parent.name}/{path.stem}.png" for path in paths]


def session_of(path):
    """Return a session that runs a file."""
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def answers(session, asked, kept=None):
    """Return all outputs of a file for photos; what is in the folder `kept` is not asked again."""
    names = [each.name for each in session.get_outputs()]
    found = []
    for first in range(0, len(asked), BATCH):
        path = None if kept is None else kept / f"{first}.npz"
        if path is None or not path.exists():
            batch = [np.asarray(Image.open(each).convert("RGB")) for each in asked[first:][:BATCH]]
            outputs = session.run(names, {"image": np.stack(batch)})
            if path is not None:
                np.savez(path, *outputs)
        else:
            with np.load(path) as content:
                outputs = list(content.values())
        found.append(outputs)
    parts = zip(*found, strict=True)
    return dict(zip(names, map(np.concatenate, parts), strict=True))


def compared(labels, wanted, path, asked, folder, part):
    """Return how the answers of a file compare with those of ``predict``, and which differ."""
    kept = folder / f"answers of {part}, {len(asked)}"
    kept.mkdir(exist_ok=True)
    found = answers(session_of(path), asked, kept)
    named = [labels[place] for place in found["top"][:, 0]]
    order = [[labels.index(label) for label, _ in each.top] for each in wanted]
    shares = np.array([[share for _, share in each.top] for each in wanted])
    away = np.abs(np.take_along_axis(found["probabilities"], np.array(order), axis=1) - shares)
    right = [
        np.array([a == path.parent.name for a, path in zip(given, asked, strict=True)], float)
        for given in ([each.label for each in wanted], named)
    ]
    lost = 100 * (right[0] - right[1])
    return {
        "n": len(asked),
        "MB": path.stat().st_size / 1e6,
        "equal": sum(a.label == b for a, b in zip(wanted, named, strict=True)),
        "ordered": sum(
            found["top"][row].tolist() == each[: found["top"].shape[1]]
            for row, each in enumerate(order)
        ),
        "away": float(away.max()),
        "known": float(np.abs(found["known"] - [each.known for each in wanted]).max()),
        "accuracy": 100 * right[1].mean(),
        "lost": lost.mean(),
        "error": lost.std() / np.sqrt(len(lost)),
        "differ": [
            f"- {part}: `{Path(each.path).name}` is {label} instead of {each.label}, "
            f"whose margin was {each.top[0][1] - each.top[1][1]:.4f}"
            for each, label in zip(wanted, named, strict=True)
            if each.label != label
        ],
    }


def timed(made, paths, asked, rounds):
    """Return milliseconds a photo of predict and of every file, the best of rounds in turn."""
    bare = ImageClassifier.of(made.model_, cache=False)
    sessions = {name: session_of(path) for name, path in paths.items()}
    ways = {"visvm predict": lambda: bare.predict(asked)}
    ways |= {name: functools.partial(answers, session, asked) for name, session in sessions.items()}
    best = dict.fromkeys(ways, np.inf)
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            best[name] = min(best[name], 1e3 * (time.perf_counter() - start) / len(asked))
    return best


def in_browser(made, wanted, asked, folder, precision):
    """Return size, milliseconds a photo and labels of the page in chromium."""
    from playwright.sync_api import sync_playwright

    from tests.end_to_end.process import browser_path

    site = folder / f"site-{precision}"
    n_bytes = made.export_web(site, precision=precision).bytes
    handler = functools.partial(Quiet, directory=site)
    milliseconds, labels = [], []
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(
            executable_path=browser_path(), args=["--no-sandbox", "--disable-gpu"]
        ) as browser,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.set_default_timeout(600_000)
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.wait_for_selector("#file:not([disabled])", state="attached")
        engine = page.inner_text("#status").removeprefix("Ready (").removesuffix(").")
        for path in asked:
            page.evaluate("document.querySelector('#time').textContent = ''")
            page.set_input_files("#file", path)
            page.locator("#time", has_text="ms").wait_for()
            milliseconds.append(float(page.inner_text("#time").split()[0]))
            labels.append(page.inner_text("#answers li span >> nth=0"))
        server.shutdown()
    equal = sum(a == b for a, b in zip(wanted, labels, strict=True))
    return {
        "n": len(asked),
        "MB": n_bytes / 1e6,
        "ms": min(milliseconds),
        "engine": engine,
        "equal": equal,
    }


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A static host."""

    extensions_map = {".mjs": "text/javascript", ".js": "text/javascript", ".html": "text/html"}  # noqa: RUF012

    def log_message(self, *_):
        """Say nothing."""


def table(rows):
    """Return rows of equal keys as Markdown."""
    names = list(rows[0])
    lines = [" | ".join(names), "|".join(["---"] * len(names))]
    return [f"| {line} |" for line in lines + [" | ".join(row.values()) for row in rows]]


def exported(learned, folder):
    """Return the model and its files by name, made unless they are in the folder."""
    if (folder / "model.visvm").exists():
        made = ImageClassifier.load(folder / "model.visvm", for_prediction=True)
    else:
        made = ImageClassifier(transform="squash", layers=(9, 12), ridge=100.0)
        made.learn(learned, [path.parent.name for path in learned])
        made.export(folder / "model.visvm")
    paths = {name: folder / f"{name}.onnx" for name in (*PRECISIONS, DYNAMIC)}
    for precision in PRECISIONS:
        if not paths[precision].exists():
            made.export_onnx(paths[precision], precision=precision)
    if not paths[DYNAMIC].exists():
        how = {"weight_type": QuantType.QInt8, "per_channel": True}
        quantize_dynamic(paths["float32"], paths[DYNAMIC], op_types_to_quantize=["MatMul"], **how)
    return made, paths


def measured(options, kept, folder):
    """Measure what is wanted, and keep each part as soon as it is there."""
    learned, asked = photos(options.data, options.classes)
    made, paths = exported(learned, folder)
    labels = list(made.classes_)
    of = {"classes": options.classes}  # what a part was measured with
    if "times" in options.parts:
        times = timed(made, paths, asked[:BATCH], options.rounds)
        keep(kept, "times", {**of, "rounds": options.rounds, "ms": times})
    for part in options.parts:
        if part == "times":
            continue
        chosen = spaced(asked, PAGE_PHOTOS if part in PAGES else options.images)
        if part == RESIZED:
            chosen = resized(chosen, folder / "resized")
        wanted = made.predict(chosen, top=len(labels))
        if part not in PAGES:
            path = paths["float32" if part == RESIZED else part]
            found = compared(labels, wanted, path, chosen, folder, part)
        else:
            precision = part.removeprefix("page ")
            found = in_browser(made, [each.label for each in wanted], chosen, folder, precision)
        keep(kept, part, {**of, **found})


def keep(kept, part, found):
    """Keep what a part found."""
    kept[part] = found
    print(part, found, flush=True)
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if {"times", *PRECISIONS} & kept.keys() > {"times"}:
        (HERE / "EXPORT.md").write_text(page_text(kept), encoding="utf-8")


def main():
    """Print everything, and keep it."""
    parts = ("times", *PAGES, *PRECISIONS, RESIZED, DYNAMIC)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=parts, help=f"all by default: {parts}")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, help="folder that keeps model and files")
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--images", type=int, default=1000, help="asked of each file")
    parser.add_argument("--rounds", type=int, default=9, help="of which the best counts")
    options = parser.parse_args()
    if options.work is not None:
        options.work.mkdir(parents=True, exist_ok=True)
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        measured(options, kept, options.work or Path(name))
    print(page_text(kept))


def page_text(kept):
    """Return the page."""
    times, own = kept["times"]["ms"], kept["times"]["ms"]["visvm predict"]
    files = [name for name in (*PRECISIONS, RESIZED, DYNAMIC) if name in kept]
    rows = [
        {
            "file": name,
            "MB": f"{kept[name]['MB']:.1f}",
            "labels equal": f"{kept[name]['equal']} of {kept[name]['n']}",
            "first five in order": f"{kept[name].get('ordered', '')}",
            "probabilities within": f"{kept[name]['away']:.1e}",
            "known within": f"{kept[name]['known']:.1e}",
            "points lost": f"{kept[name]['lost']:+.2f} ± {kept[name]['error']:.2f}",
            "ms a photo": f"{times[name]:.0f}" if name in times else "",
            "× predict": f"{times[name] / own:.2f}" if name in times else "",
        }
        for name in files
    ]
    sites = [
        {
            "weights": part.removeprefix("page "),
            "folder, MB": f"{kept[part]['MB']:.1f}",
            "engine": kept[part]["engine"],
            "ms a photo": f"{kept[part]['ms']:.0f}",
            "labels as predict": f"{kept[part]['equal']} of {kept[part]['n']}",
        }
        for part in PAGES
        if part in kept
    ]
    written = (
        f"Written by `python benchmarks/export.py --data DATA` on {os.cpu_count()} cores, with "
        f"other work on them, ONNX Runtime {onnxruntime.__version__}: {kept['times']['classes']} "
        f"CUB-200 classes learned from {LEARNED} photos each with dinov2-s14 and D = 15 000, test "
        f"photos asked. Times are the best of {kept['times']['rounds']} rounds in turn, {BATCH} "
        f"photos at a time; `visvm predict`, which encodes here too, took {own:.0f} ms a photo."
    )
    explained = (
        "*Points lost*: of accuracy, against `visvm predict`, with the standard error of the "
        f"paired difference. *{RESIZED}*: photos of {SIDES[0]} × {SIDES[1]} pixels, which file and "
        "`visvm predict` make square each in its own way; the others are square as they are. "
        f"*{DYNAMIC}*: the float32 file after ONNX Runtime's own "
        "`quantize_dynamic`, whose products are of 8 bits; `visvm export` does not offer it."
    )
    differ = [line for name in files for line in kept[name]["differ"]]
    parts = ["# Exported files beside `visvm predict`", written, "\n".join(table(rows)), explained]
    parts += ["## Labels that differ", "\n".join(differ) or "None."]
    if sites:
        parts += ["## In chromium, one thread, one photo at a time", "\n".join(table(sites))]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
