"""Diagnoses as files beside the results: ``diagnosis-DATASET-ENCODER.json``."""

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from visvm.bench.diagnosis import Correlation, Cosines, Curve, Joint, Point, diagnose
from visvm.bench.features import EncodedData
from visvm.bench.methods.method import Setup
from visvm.bench.methods.text import joint
from visvm.bench.rows import Run, Share
from visvm.bench.streams import Samples, validation_split
from visvm.bench.texts import require_kinship
from visvm.encoders.files import read_file, replacing
from visvm.errors import InputError, shown
from visvm.progress import Progress

_PARTS = 5

_Names = Annotated[list[str], Meta(min_length=1)]


class Diagnosis(Struct, frozen=True, forbid_unknown_fields=True):
    """All of it, for one data set and encoder."""

    run: str  # key of the run whose stream it has, which tells data, text and weights
    dataset: str
    encoder: str
    text: str
    text_of: str
    n_train: int
    n_test: int
    classes: _Names
    gaps: list[float]
    text_accuracy: list[Share]
    image_accuracy: list[Share]
    correlations: dict[str, Correlation]  # of the gap with "gain", "text" and "image"
    curves: list[Curve]
    cosines: dict[str, Cosines]
    map: dict[str, list[Point]]  # "images", "means", "texts"
    distance: float  # between the means of images and of texts
    separated: Share  # of images and texts by a linear discriminant, held out, both alike


def diagnosis_of(data: EncodedData, setup: Setup, run: Run, progress: Progress) -> Diagnosis:
    """Make the diagnosis of a data set whose texts are known.

    The stream of its training is that of a run.
    """
    texts = data.texts
    assert texts is not None
    train, test = (data.train, data.test) if run.split == "test" else validation_split(data.train)
    require_kinship(texts, train, lambda rows: joint(rows, setup))
    images = [joint(part.features, setup) for part in (train, test)]
    said = texts.prototypes.astype(np.float64)
    space = Joint(images[0], train.targets, images[1], test.targets, said)
    fields: dict[str, Any] = {}
    parts = diagnose(space, run.protocol, run.class_order_seed, texts.scale)
    for number, (name, found) in enumerate(parts, start=1):
        fields |= found
        progress(f"diagnosis: {name}", number, _PARTS)
    return Diagnosis(
        run=run.key,
        dataset=run.dataset,
        encoder=run.encoder,
        text=texts.digest,
        text_of=run.text_of,
        n_train=_count(train),
        n_test=_count(test),
        classes=data.classes,
        **fields,
    )


def _count(samples: Samples) -> int:
    return len(samples.targets)


def path_of(folder: Path, run: Run) -> Path:
    """Return where the diagnosis of a run's data set and encoder is kept."""
    plain = (re.sub(r"[^\w.-]+", "-", name).strip("-.") for name in (run.dataset, run.encoder))
    return folder / f"diagnosis-{'-'.join(plain)}.json"


def write_diagnosis(path: Path, diagnosis: Diagnosis) -> None:
    """Write a diagnosis; it takes the place of another in one step."""
    try:
        with replacing(path) as file:
            file.write(msgspec.json.encode(diagnosis))
    except OSError as error:
        raise InputError(
            f"{shown(path)} cannot be written ({error.strerror}). Give another --out.",
            code="results-unwritable",
        ) from error


def read_diagnoses(folder: Path) -> list[Diagnosis]:
    """Read the diagnoses of a folder, in the order of their names."""
    return [_read(path) for path in sorted(folder.glob("diagnosis-*.json"))]


def is_there(folder: Path, run: Run) -> bool:
    """Return whether there is a diagnosis with the stream of this very run."""
    path = path_of(folder, run)
    return path.exists() and _read(path).run == run.key


def _read(path: Path) -> Diagnosis:
    try:
        return msgspec.json.decode(read_file(path), type=Diagnosis)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(
            f"{shown(path)} is not a diagnosis ({error}). Remove it, or make it again.",
            code="diagnosis-invalid",
        ) from error
