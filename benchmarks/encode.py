"""Measure encoding: a folder of photos beside the bare encoder, ONNX Runtime beside transformers.

    python benchmarks/encode.py            both parts (about ten minutes on 2 cores)
    python benchmarks/encode.py folder     only the folder pipeline
    python benchmarks/encode.py engines    only the two engines (needs the extra torch)

Print a table and write it to ENCODE.md beside this file. The two sides of each row are measured in
turn in one run, the best of three for each. No feature cache is used.
"""

import argparse
import os
import platform
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from PIL import Image

from visvm import load_encoder
from visvm.encoders.encoder import Encoder, Preprocessing
from visvm.encoders.graph import prepare
from visvm.encoders.images import decode
from visvm.encoders.onnx import OnnxEncoder
from visvm.encoders.pipeline import BATCH_SIZE, encode_files
from visvm.encoders.transform import Transform

HERE = Path(__file__).parent
REPEATS = 3
N_IMAGES = 64


class Row(NamedTuple):
    """One line of the table: images a second on either side."""

    what: str
    ours: float
    theirs: float
    ratio: float
    wanted: str
    holds: bool


def best_of(*works: Callable[[], object]) -> list[float]:
    """Return the best time of each piece of work; they take turns."""
    best = [float("inf")] * len(works)
    for _ in range(REPEATS):
        for place, work in enumerate(works):
            begin = time.perf_counter()
            work()
            best[place] = min(best[place], time.perf_counter() - begin)
    return best


def make_photos(folder: Path, n: int, size: tuple[int, int], kind: str) -> list[Path]:
    """Write pictures with texture at every scale, so that decoding costs as much as for photos."""
    generator = np.random.default_rng(0)
    width, height = size
    total = np.zeros((height, width, 3), dtype=np.float32)
    for cells in (4, 16, 64, 256, 1024):
        noise = generator.normal(size=(cells, cells, 3)).astype(np.float32) / np.sqrt(cells)
        for channel in range(3):
            total[..., channel] += np.asarray(
                Image.fromarray(noise[..., channel]).resize(size, Image.Resampling.BICUBIC)
            )
    total = 255 * (total - total.min()) / np.ptp(total)
    paths = []
    for number in range(n):
        picture = Image.fromarray(np.roll(total, 37 * number, axis=1).astype(np.uint8))
        paths.append(folder / f"{number:03}.{kind}")
        picture.save(paths[-1], quality=90)
    return paths


def folder_rows(encoder: Encoder) -> list[Row]:
    """Measure a folder through the whole pipeline, beside as many ready images encoded."""
    rows = []
    for what, size, kind in (
        ("500 x 375 JPEG", (500, 375), "jpg"),
        ("1600 x 1200 JPEG", (1600, 1200), "jpg"),
        ("4000 x 3000 JPEG (12 megapixels)", (4000, 3000), "jpg"),
        ("224 x 224 WebP", (224, 224), "webp"),
    ):
        with tempfile.TemporaryDirectory() as folder:
            paths = make_photos(Path(folder), N_IMAGES, size, kind)
            transform = Transform("crop", encoder.preprocessing)
            pixels = np.stack([decode(path.read_bytes(), transform) for path in paths[:BATCH_SIZE]])

            def bare(batch: Any = pixels) -> None:
                for _ in range(N_IMAGES // BATCH_SIZE):
                    encoder.encode(batch)

            def whole(files: list[Path] = paths, how: Transform = transform) -> None:
                encode_files(files, encoder, [how], None)

            times = best_of(whole, bare)
        ratio = times[0] / times[1]
        rows.append(
            Row(
                f"folder of {what}",
                N_IMAGES / times[0],
                N_IMAGES / times[1],
                ratio,
                "at most 1.15",
                ratio <= 1.15,
            )
        )
        print(rows[-1], flush=True)
    return rows


def exported(model: Any, preprocessing: Preprocessing) -> OnnxEncoder:
    """Return a model of transformers with twelve blocks as an encoder in ONNX Runtime."""
    import torch

    class Blocks(torch.nn.Module):  # type: ignore[misc]
        def forward(self, pixels: Any) -> Any:
            return model(pixels, output_hidden_states=True).hidden_states[1:]

    names = [f"block_{number}" for number in range(1, 13)]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "vit.onnx"
        torch.onnx.export(
            Blocks(),
            (torch.zeros(2, 3, 224, 224),),
            path,
            input_names=["pixels"],
            output_names=names,
            dynamic_axes={name: {0: "n"} for name in ("pixels", *names)},
            dynamo=False,
        )
        content = prepare(onnx.load(path), names, preprocessing)
    return OnnxEncoder("dinov2-s14 of ONNX Runtime", "", content)


def engine_rows() -> list[Row]:
    """Measure ONNX Runtime beside transformers, on one DINOv2 ViT-S/14 with the same weights.

    The weights are random, which takes as long; both engines must give the same features.
    """
    from transformers import Dinov2Config, Dinov2Model

    from visvm.encoders.tower import TowerEncoder

    config = Dinov2Config(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, patch_size=14, image_size=224
    )
    preprocessing = Preprocessing(224, 256, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    theirs = TowerEncoder(
        "dinov2-s14 of transformers", Dinov2Model(config).eval(), preprocessing, device="cpu"
    )
    ours = exported(theirs._module, preprocessing)
    pixels = np.random.default_rng(0).normal(size=(BATCH_SIZE, 3, 224, 224)).astype(np.float32)
    difference = float(np.abs(ours.encode(pixels) - theirs.encode(pixels)).max())
    print(f"largest difference between the engines' features: {difference:.1e}")
    times = best_of(lambda: ours.encode(pixels), lambda: theirs.encode(pixels))
    ratio = times[1] / times[0]
    row = Row(
        "ONNX Runtime beside transformers",
        BATCH_SIZE / times[0],
        BATCH_SIZE / times[1],
        ratio,
        "above 1",
        ratio > 1,
    )
    print(row, flush=True)
    return [row]


def write(rows: list[Row]) -> None:
    """Write the table to ENCODE.md."""
    machine = f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"
    lines = [
        "# Speed of encoding",
        "",
        f"Written by `python benchmarks/encode.py` on {machine},",
        f"ONNX Runtime {onnxruntime.__version__}; best of {REPEATS}, both sides in turn in one",
        "run.",
        "",
        "| what | images a second | beside it | ratio | wanted | holds |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        holds = "yes" if row.holds else "no"
        speeds = f"{row.ours:.1f} | {row.theirs:.1f} | {row.ratio:.2f}"
        lines.append(f"| {row.what} | {speeds} | {row.wanted} | {holds} |")
    lines += [
        "",
        "*Folder*: reading, decoding and encoding files with `dinov2-s14`, beside the encoder",
        "alone on pixels that are ready; the ratio is of the times. *ONNX Runtime beside",
        "transformers*: one DINOv2 ViT-S/14 through both engines; the ratio is of the speeds.",
        "",
    ]
    (HERE / "ENCODE.md").write_text("\n".join(lines))


def main() -> None:
    """Run the chosen parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts",
        nargs="*",
        choices=["folder", "engines", []],
        help="which parts; all if none is named",
    )
    parts = parser.parse_args().parts or ["folder", "engines"]
    rows = []
    if "folder" in parts:
        rows += folder_rows(load_encoder("dinov2-s14"))
    if "engines" in parts:
        rows += engine_rows()
    if len(parts) == 2:
        write(rows)


if __name__ == "__main__":
    main()
