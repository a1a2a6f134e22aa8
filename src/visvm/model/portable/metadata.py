"""What an exported file says of itself."""

import io
import json
from collections.abc import Mapping
from dataclasses import replace

from onnx import ModelProto

import visvm
from visvm.encoders.catalog import CATALOG
from visvm.encoders.loading import named
from visvm.errors import InputError
from visvm.head.calibration import inverse_temperature
from visvm.head.familiarity import UNKNOWN
from visvm.model import changes
from visvm.model.container import content_digest, write_content
from visvm.model.file import packed
from visvm.model.state import Model

LABELS_KEY = "visvm.labels"
_MOST_SEED = 2**53  # JavaScript's numbers

_HOW_TO = (
    "image: photos as uint8 (n, height, width, 3), RGB, upright, of any size; all of a batch have "
    "one size. As float32: from 0 to 1."
)
_HEAD_HOW_TO = "layer_features: float32 (n, {width}), the CLS token of every block of the encoder."
_ANSWERS = (
    "probabilities and scores: (n, classes), in the order of visvm.labels. top: places of the "
    "likeliest classes. known: share of learned images that look less familiar; below "
    "visvm.unknown a photo shows none of the classes. known is missing where a model cannot tell."
)


def described(model: Model, kind: str | None, precision: str) -> dict[str, str]:
    """Return what the file of a model says of itself.

    Parameters
    ----------
    model : Model
    kind : str or None
        Of numbers that photos have; None for the head alone.
    precision : str
    """
    encoder = model.encoder
    bare, _ = named(encoder.name)
    name = bare if bare in CATALOG else "a file of its owner"
    licence = CATALOG[bare].licence if bare in CATALOG else "unknown"
    alone = _HEAD_HOW_TO.format(width=model.head.settled.lift.n_inputs)
    return {
        LABELS_KEY: json.dumps(model.classes.tolist(), ensure_ascii=False),
        "visvm.encoder": json.dumps(
            {
                "name": f"{name}{encoder.name.removeprefix(bare)}",
                "sha256": encoder.digest,
                "licence": licence,
                "transform": encoder.transform,
            }
        ),
        "visvm.licence": f"weights of the encoder: {licence}; what was learned: its owner's",
        "visvm.model": content_digest(*packed(changes.for_prediction(model))),
        "visvm.calibration": json.dumps(
            {
                "inverse_temperature": inverse_temperature(model.calibration.likelihoods),
                "n_classes": model.calibration.n_classes,
            }
        ),
        "visvm.unknown": str(UNKNOWN),
        "visvm.precision": precision,
        "visvm.version": visvm.__version__,
        "visvm.how_to": f"{alone if kind is None else _HOW_TO} {_ANSWERS}",
    }


def write_metadata(model: ModelProto, entries: Mapping[str, str]) -> None:
    """Replace what a graph says of itself."""
    del model.metadata_props[:]
    for key, value in entries.items():
        model.metadata_props.add(key=key, value=value)


def settled_content(model: Model) -> bytes:
    """Return a model file without classes and sums, for the page to complete."""
    settled = model.head.settled
    if settled.options.n_components is None or settled.seed >= _MOST_SEED:
        raise InputError(
            "This model's random map cannot be drawn in a browser: it needs one with a seed below "
            "2**53. Export it without --teach.",
            code="web-map",
        )
    bare = changes.for_site(model, "")
    header, tensors = packed(replace(bare, encoder=replace(model.encoder, views="one")))
    del header["site"]
    kept = {name: tensor for name, tensor in tensors.items() if name.startswith("mixer.")}
    file = io.BytesIO()
    write_content(file, header, kept)
    return file.getvalue()
