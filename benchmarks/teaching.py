"""The page that teaches (`visvm export --web --teach`) in chromium: time and accuracy.

    python benchmarks/teaching.py --data DATA [--classes 20] [--photos 20]

The page of a model of 20 other CUB-200 classes learns these classes anew; `visvm learn` learns them
from the same photos. Both are asked about ten other photos of each class. To save time, the page
encodes only some photos; the others' features come from the same file in ONNX Runtime, and go to
the page's own worker. Prints what it finds, and keeps it in TEACHING.md beside this file.
"""

import argparse
import functools
import gzip
import http.server
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from export import Quiet, session_of, table
from PIL import Image

from tests.end_to_end.process import browser_path
from visvm import ImageClassifier

HERE = Path(__file__).parent
WIDTHS = (2000, 5000)
OTHERS, ASKED, ENCODED = 20, 10, 8


def photos(data, first, n_classes, start, n):
    """Return photos of some classes, from one place on."""
    folders = sorted(path for path in (data / "cub200/train").iterdir() if path.is_dir())
    return [
        path for each in folders[first:][:n_classes] for path in sorted(each.iterdir())[start:][:n]
    ]


def names(paths):
    """Return the classes of photos."""
    return [path.parent.name for path in paths]


LEARN = """async ([fused, labels, width]) => {
  const settled = await (await fetch("settled.visvm")).arrayBuffer();
  const worker = new Worker("worker.js", { type: "module" });
  const made = await new Promise((resolve) => {
    worker.onmessage = ({ data }) => data.result && resolve(data.result);
    const what = { kind: "learn", settled, fused: Float32Array.from(fused), labels, width };
    worker.postMessage({ id: 1, what });
  });
  const link = document.querySelector("#download");
  link.href = URL.createObjectURL(made.file);
  document.querySelector("#learned").hidden = false;
  return made.seconds;
}"""


def encoded(site, paths):
    """Return the fused features of photos by the file of a page, (n, d)."""
    (file,) = site.glob("*.onnx.gz")
    session = session_of(gzip.decompress(file.read_bytes()))
    images = ([np.asarray(Image.open(path).convert("RGB"))] for path in paths)
    return np.concatenate(
        [session.run(["fused"], {"image": np.stack(image)})[0] for image in images]
    )


def taught(page, folder, learned):
    """Teach the page; return seconds for a photo, and to learn by width."""
    page.locator("#photos:not([disabled])").wait_for(state="attached")
    begin = time.perf_counter()
    page.fill("#name", "some")
    page.set_input_files("#photos", learned[:ENCODED])
    page.locator("#classes li").wait_for()
    seconds, took = (time.perf_counter() - begin) / ENCODED, {}
    fused = encoded(folder / "site", learned).ravel().tolist()
    for width in WIDTHS:
        took[width] = page.evaluate(LEARN, [fused, names(learned), width])
        with page.expect_download() as download:
            page.click("#download")
        download.value.save_as(folder / f"{width}.visvm")
    return seconds, took


def main():
    """Print everything, and keep it."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--photos", type=int, default=20)
    options = parser.parse_args()
    of = functools.partial(photos, options.data)
    learned = of(0, options.classes, 0, options.photos)
    asked = of(0, options.classes, options.photos, ASKED)
    other = of(options.classes, OTHERS, 0, 10)
    made = ImageClassifier(transform="squash", layers=(9, 12))
    made.learn(other, names(other))
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        made.export_web(folder / "site", teach=True)
        handler = functools.partial(Quiet, directory=folder / "site")
        browser = playwright.chromium.launch(
            executable_path=browser_path(), args=["--no-sandbox", "--disable-gpu"]
        )
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            page = browser.new_page()
            page.set_default_timeout(1_800_000)
            page.goto(f"http://127.0.0.1:{server.server_port}/teach.html")
            seconds, took = taught(page, folder, learned)
            server.shutdown()
        lines = [row(width, each, folder, learned, asked) for width, each in took.items()]
    written = (
        f"Written by `python benchmarks/teaching.py --data DATA --classes {options.classes} "
        f"--photos {options.photos}` on {os.cpu_count()} cores, with other work: "
        f"{options.classes} CUB-200 classes of {options.photos} photos each, dinov2-s14 in "
        f"int8, WebAssembly in one thread. A photo took {seconds:.2f} s ({ENCODED} photos); then "
        "learning took:"
    )
    explained = (
        f"*Accuracy*: of the downloaded file, by `visvm predict`, on {ASKED} other photos of each "
        "class, and of a model that `visvm learn` made of the same photos, "
        "mixer and λ its own; ± is the standard error of the paired difference."
    )
    title = "# Teaching in the browser"
    text = "\n".join([title, "", written, "", *table(lines), "", explained, ""])
    (HERE / "TEACHING.md").write_text(text, encoding="utf-8")
    print(text)


def row(width, seconds, folder, learned, asked):
    """Return how a model that was taught in the browser compares."""
    path = folder / f"{width}.visvm"
    ours = ImageClassifier.load(path)
    own = ImageClassifier(transform="squash", n_components=width, layers=(9, 12))
    own.learn(learned, names(learned))
    said = [each.label for each in ours.predict(asked)]
    right = [
        np.array([a == b for a, b in zip(given, names(asked), strict=True)], float)
        for given in (said, [each.label for each in own.predict(asked)])
    ]
    error = 100 * (right[0] - right[1]).std() / np.sqrt(len(asked))
    return {
        "D": str(width),
        "s": f"{seconds:.1f}",
        "file, MB": f"{path.stat().st_size / 1e6:.0f}",
        "accuracy": f"{100 * right[0].mean():.1f}",
        "of visvm learn": f"{100 * right[1].mean():.1f} ± {error:.1f}",
    }


if __name__ == "__main__":
    main()
