"""The files that are changed, and those that commands need beside them, all made on the spot.

They are kept as bytes by name. Whatever a command did to the folder it works in, the next one
finds it as the first did, times of files included: a journal is known by them.
"""

import os
import shutil
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from tests import tiny
from tests.bench.test_cifar import write_cifar
from tests.encoders.tiny_weights import entry, onnx_bytes, write_wheel
from tests.model.raw import contents

MODELS = ("whole.visvm", "dense.visvm", "exported.visvm", "site.visvm", "site.sums")
JOURNAL = ".x.visvm.journal"
KINDS = ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP", "AVIF", "HEIF", "PPM", "ICO")
TIME = 1_700_000_000  # of all files
LEFT = ("cache", "report", "figures")  # what commands may leave behind, besides locks

RECIPE = """\
title = "a small run"
datasets = ["set"]
methods = ["simplecil", "visual-lssvm+kernel"]
protocols = ["B1 Inc1"]
encoders = ["tiny.onnx"]
class_order_seeds = [1993]
feature_seeds = [0]
split = "test"
train_per_class = 2
transform = "squash"
options = { n_components = 10 }
vary = { svm_cost = [1.0] }
"""

Files = dict[str, bytes]


def prepare(folder: Path) -> Files:
    """Make all files in a folder that exists, and return them by name."""
    with within(folder):
        encoder = str(tiny.write_encoder(Path()))
        tiny.write_photos(Path("photos"), n=2)
        tiny.write_photos(Path("more"), ("yellow", "red"), n=2, seed=1)
        Path("table.csv").write_text("photos/red/0-0.png,red\nmore/yellow/1-0.png,yellow\n")
        _write_models(encoder)
        _write_round()
        _write_pictures()
        _write_benchmark()
        Path("tiny-bare.onnx").write_bytes(onnx_bytes())
        write_wheel(Path("tiny.whl"))
        files = found(folder)
        shutil.rmtree("cache")
        restore(folder, files)
        files[JOURNAL] = _journal(folder, files)
        return files


def _steady(path: Path) -> None:
    """Have a model say nothing of this machine and moment: a number is to stand for one input."""

    from visvm.model.container import replace_file

    header, tensors = contents(path)
    header["encoder"]["name"] = "tiny.onnx"
    for session in header["sessions"]:
        session |= {"learned_at": "2026-01-01T00:00:00+00:00", "peak_memory": 2**28}
        session["seconds"] = dict.fromkeys(session["seconds"], 0.5)
    del header["format"], header["tensors"]
    replace_file(path, header, dict(sorted(tensors.items())))


@contextmanager
def within(folder: Path):
    """Work in a folder, with a cache of its own and a catalogue that has the tiny encoder."""
    from visvm.encoders import catalog

    before, cache = os.getcwd(), os.environ.get("VISVM_CACHE")
    os.chdir(folder)
    os.environ["VISVM_CACHE"] = str(folder / "cache")
    catalog.CATALOG["tiny"] = entry(onnx_bytes())
    try:
        yield
    finally:
        os.chdir(before)
        del os.environ["VISVM_CACHE"], catalog.CATALOG["tiny"]
        if cache is not None:
            os.environ["VISVM_CACHE"] = cache


def found(folder: Path) -> Files:
    """All files of a folder by name, without those that any command may leave there."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
        and not path.name.endswith(".lock")
        and not path.relative_to(folder).parts[0].startswith(LEFT)
        and not path.name.startswith(LEFT)
    }


def restore(folder: Path, files: Files) -> None:
    """Put the files into a folder that are not there as they should be, and no others."""
    there = found(folder)
    for name in there.keys() - files.keys():
        (folder / name).unlink()
    for name, content in files.items():
        path = folder / name
        if there.get(name) != content or path.stat().st_mtime != TIME:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_bytes(content)
            os.utime(path, (TIME, TIME))


def _write_models(encoder: str) -> None:
    from visvm import ImageClassifier
    from visvm.model.sites import SiteStatistics

    for name, width in (("whole", 40), ("dense", 8)):
        model = ImageClassifier(encoder, n_components=width, cache=False, layers=(1, 3), ridge=1.0)
        model.learn("photos", test="photos")
        model.save(f"{name}.visvm")
    model = ImageClassifier.load("whole.visvm", cache=False)
    model.export("exported.visvm")
    model.export_for_site("site.visvm")
    model.learn_statistics("more").save("site.sums", reveal_features=True)
    _steady(Path("site.sums"))
    model.merge(SiteStatistics.load("site.sums")).save("merged.visvm")
    for name in {*MODELS, "merged.visvm"} - {"site.sums"}:
        _steady(Path(name))


def _write_round() -> None:
    """A round of masked sums (``visvm masked``) of three sites, of which the last dropped out."""
    from visvm.model import masked, rounds
    from visvm.model.file import read
    from visvm.model.masks import public_of
    from visvm.model.sites import SiteStatistics

    sums, keys = SiteStatistics.load("site.sums"), []
    for name in "abc":
        private, of = name.encode() * 32, rounds.ModelId.of(sums.model)
        card = rounds.Card(name, name * 16, public_of(private).hex(), of, ["red", "yellow"])
        keys.append(rounds.Key(private.hex(), card))
        rounds.write_note(Path(f"{name}.key"), keys[-1])
        rounds.write_note(Path(f"{name}.card"), card)
    roster = rounds.make_roster(read(Path("whole.visvm")), [key.card for key in keys], 1000)
    rounds.write_note(Path("a.roster"), roster)
    for name, key in zip("ab", keys, strict=False):
        own = SiteStatistics(replace(sums.model, site=key.card.site))
        own.save(f"{name}.sums", reveal_features=True)
        masked.mask(key, roster, own).save(Path(f"{name}.masked"))
        rounds.write_note(Path(f"{name}.reveal"), masked.reveal(key, roster, ["c" * 16])[1])


def _write_pictures() -> None:
    import pillow_heif

    pillow_heif.register_heif_opener()
    pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 3)).astype(np.uint8)
    Path("pictures").mkdir()
    for kind in KINDS:
        Image.fromarray(pixels).save(f"pictures/{kind.lower()}", kind)


def _write_benchmark() -> None:
    """A data set with the rows of a run on it, texts, a recipe, and CIFAR-100 as pickles."""
    from tests.fuzz.judge import outcome_of
    from visvm.encoders.texts import Phrases, TextFeatures, unit, write_texts

    for split, seed in (("train", 0), ("test", 3)):
        tiny.write_photos(Path("set") / split, ("red", "green"), n=2, seed=seed)
    write_cifar(Path("data/cifar100/cifar-100-python"), 1, 1)
    for name, said in (("good", RECIPE), ("cifar", RECIPE.replace('"set"', '"cifar100"'))):
        Path(f"{name}.toml").write_text(said)
    rows = np.random.default_rng(0).normal(size=(2, 1, tiny.WIDTH)).astype(np.float32)
    said = np.array([[0, -1], [1, 0]])
    phrases = Phrases(("bright", "dark"), unit(rows[:, 0]), said)
    names = ("red", "green")
    write_texts(Path("texts.npz"), TextFeatures(names, unit(rows), ("a {}",), phrases=phrases))
    ended = outcome_of(("bench", "good.toml", "--out", "rows", "--quiet"))
    assert ended.code == 0, ended.err


def _journal(folder: Path, files: Files) -> bytes:
    """The journal of `visvm learn x.visvm more`, cut off once it was written."""
    from tests.fuzz.judge import outcome_of
    from visvm.model.journal import Journal

    restore(folder, {**files, "x.visvm": files["whole.visvm"]})
    write = Journal.write

    def cut_off(journal, noted):
        write(journal, noted)
        raise KeyboardInterrupt

    Journal.write, os.environ["VISVM_JOURNAL_SECONDS"] = cut_off, "0"
    try:
        assert outcome_of(("learn", "x.visvm", "more")).code == 130
    finally:
        Journal.write = write
        del os.environ["VISVM_JOURNAL_SECONDS"]
    return (folder / JOURNAL).read_bytes()
