"""A model ↔ one file, format 1: the only reader and the only writer.

The header is that of ``header.py``. Tensors are ``mixer.*``, ``calibration``, ``coefficients``
(unless the kind is "sums" or "journal"), ``known.*`` (how familiar learned images look, where that
was noted), ``texts`` (of the head's ``text_classes``), and (unless it is "predictor")
``class_sums`` with either ``factor.0…`` and ``targets`` (thin) or ``scatter`` (the lower triangle,
column by column) and ``cross`` (dense). R is drawn from its seed and compared with its digest.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from visvm.encoders.sources import expanded
from visvm.errors import ModelFileError, VisvmError, shown
from visvm.head.calibration import INVERSE_TEMPERATURES
from visvm.head.checks import Labels, is_count, is_positive
from visvm.head.fusion import MixerOptions, MixerWeights, ResidualMixer
from visvm.head.head import Head
from visvm.head.lift import Lift
from visvm.head.selection import LayerTrial, RidgeTrial
from visvm.head.settle import MIXER_OPTIONS, HeadOptions, Settled
from visvm.model import undo
from visvm.model.checks import check_counts, check_header
from visvm.model.container import (
    Tensors,
    altered,
    content_digest,
    locked,
    opened,
    replace_file,
    same_content,
)
from visvm.model.header import (
    NO_TEXT_WEIGHT,
    Header,
    HeadHeader,
    JournalNote,
    LayerEntry,
    SiteId,
    as_builtins,
)
from visvm.model.labels import Label
from visvm.model.state import Model
from visvm.model.tensors import (
    packed_sums,
    read_calibration,
    read_spread,
    read_text_samples,
    unpacked_sums,
)

_OPTIONS = ("n_components", "ridge", "svm_cost")
_SUMS = ("class_sums", "targets", "scatter", "cross", "factor.")


@dataclass(frozen=True)
class JournalFile:
    """A journal as its file has it: a model with sums only, how far it is, and features kept."""

    model: Model
    note: JournalNote
    features: Tensors


# Writing


def write(path: Path, model: Model, *, keep: bool = False) -> None:
    """Write a model, which nobody else writes meanwhile; until the last step the old one stays.

    To `keep` it then, too, so that the change can be undone, is for changes of a model.
    """
    with locked(path):
        header, tensors = packed(model)
        undo.tidy(path)
        if keep and undo.is_wanted():
            same = same_content(path, header, tensors)
            before = undo.keep(path) if same is None else same.get("before")
            header |= {} if before is None else {"before": before}
        try:
            replace_file(path, header, tensors)
        except ModelFileError as error:
            if not undo.make_room(path, error.__cause__):
                raise
            replace_file(path, header, tensors)
        finally:
            undo.tidy(path)


def write_journal(path: Path, model: Model, note: JournalNote, features: Tensors) -> None:
    """Write a journal; until the last step the old one stays."""
    header, tensors = packed(model)
    header |= {"journal": msgspec.to_builtins(note), "kind": "journal"}
    replace_file(path, header, {**tensors, **features})


def packed(model: Model) -> tuple[dict[str, Any], Tensors]:
    """Return the header and the tensors of a model."""
    head, settled = model.head, model.head.settled
    mixer = settled.lift.mixer
    assert mixer is not None, "a model has a mixer"
    tensors = {f"mixer.{name}": value for name, value in mixer.weights._asdict().items()}
    if head.coefficients is not None:
        tensors["coefficients"] = head.coefficients
    form, sums = packed_sums(head.sums)
    counts = model.counts
    options = settled.options.parameters
    described = HeadHeader(
        **{name: as_builtins(options[name]) for name in (*_OPTIONS, *MIXER_OPTIONS)},
        layer_dims=mixer.layer_dims,
        layers=mixer.layers,
        chosen_ridge=settled.ridge,
        ridge_path=[trial._asdict() for trial in settled.ridge_path],
        layer_path=[cast(LayerEntry, trial._asdict()) for trial in settled.layer_path],
        kernel_map=settled.lift.kernel_map.entry,
        form=form,
        solved=head.coefficients is not None,
        ridge_basis=settled.ridge_basis if settled.options.renew_ridge else None,
        text_classes=list(settled.texts.classes) if settled.texts else [],
        text_weight=settled.texts.weight if settled.texts else NO_TEXT_WEIGHT,
    )
    if settled.texts is not None:
        tensors["texts"] = settled.texts.rows
    header = Header(
        encoder=model.encoder,
        head=described,
        classes=list(counts),
        counts=list(counts.values()),
        sessions=list(model.sessions),
        calibrated_classes=model.calibration.n_classes,
        site=model.site,
        merged=list(model.sites),
        learned=list(model.learned),
        requests=list(model.requests),
        change=model.change,
        events=list(model.events),
        photos=model.photos,
        kind=model.kind,
    )
    tensors |= {**sums, "calibration": model.calibration.likelihoods}
    if model.spread is not None:
        tensors |= {f"known.{name}": value for name, value in vars(model.spread).items()}
        tensors["known.tally"] = model.calibration.distances
    return header.as_dict(), {name: np.ascontiguousarray(value) for name, value in tensors.items()}


# Reading


def read_header(path: Path) -> Header:
    """Read and check the header alone."""
    with opened(path) as file:
        return _checked(path, file.header)


def read(path: Path, *, sums: bool = True) -> Model:
    """Read a model, checked; with `sums` False without them, which is enough for predicting."""
    with opened(path) as file:
        header = _checked(path, file.header)
        if header.journal is not None:
            raise ModelFileError(
                f"{shown(path)} is the journal of a session that was cut off. "
                "Run the same 'visvm learn' again to resume it.",
                code="file-is-journal",
            )
        tensors = file.tensors(lambda name: sums or not name.startswith(_SUMS))
    return _unpacked(path, header, tensors, sums=sums)


def holds(path: Path, model: Model) -> bool:
    """Whether a file has this very content, undamaged."""
    with opened(path) as file:
        if file.digest != content_digest(*packed(model)):
            return False
        file.tensors(lambda _: True)
    return True


def read_digest(path: Path) -> str:
    """Return the SHA-256 of a file's header, which tells its content from any other."""
    with opened(path) as file:
        return file.digest


def read_journal(path: Path) -> JournalFile:
    """Read a journal, checked."""
    with opened(path) as file:
        header, tensors = _checked(path, file.header), file.tensors(lambda _: True)
    if header.journal is None or "features" not in tensors:
        raise altered(path, "this is not a journal")
    features = {"features": tensors.pop("features")}
    return JournalFile(_unpacked(path, header, tensors, sums=True), header.journal, features)


@contextmanager
def _fitting_together(path: Path) -> Iterator[None]:
    """Turn what a crafted file leads to into one clear line."""
    try:
        yield
    except ModelFileError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, VisvmError) as error:
        reason = " ".join(str(error).split())
        raise altered(path, f"its parts do not fit together ({reason})") from error


def _checked(path: Path, header: dict[str, Any]) -> Header:
    if header.get("kind") == "masked":
        raise ModelFileError(
            f"{shown(path)} holds masked sums, which mean nothing without the other sites'. "
            "Add them up with 'visvm masked total'.",
            code="file-is-masked",
        )
    with _fitting_together(path):
        typed = msgspec.convert(header, Header)
        for each in typed.merged:
            msgspec.convert(each.id, SiteId)
        check_header(typed, os.path.getsize(expanded(path)))
    return typed


def _unpacked(path: Path, header: Header, tensors: Tensors, *, sums: bool) -> Model:
    with _fitting_together(path):
        settled = _settled(path, header.head, tensors)
        labels = _labels(header.classes)
        width = settled.lift.width
        coefficients = tensors["coefficients"] if header.head.solved else None
        if coefficients is not None and coefficients.shape != (width + 1, len(labels)):
            raise ValueError(f"coefficients have shape {coefficients.shape}")
        if tensors["calibration"].shape != INVERSE_TEMPERATURES.shape:
            raise ValueError(f"calibration has shape {tensors['calibration'].shape}")
        statistics = None
        if header.head.form is not None and sums:
            statistics = unpacked_sums(header.head.form, labels, width, tensors)
            check_counts(header.counts, statistics)
        return Model(
            encoder=header.encoder,
            head=Head(settled, labels, statistics, coefficients),
            calibration=read_calibration(header.calibrated_classes, tensors),
            sessions=tuple(header.sessions),
            site=header.site,
            sites=tuple(header.merged),
            learned=tuple(header.learned),
            exported_counts=tuple(header.counts),
            sums_on_disk=statistics is None and header.head.form is not None,
            requests=tuple(header.requests),
            spread=read_spread(labels, settled.lift.kernel_map.n_inputs, tensors),
            change=header.change,
            events=tuple(header.events),
            photos=header.photos,
        )


def _labels(classes: list[Label]) -> Labels:
    labels = np.array(classes) if classes else np.empty(0, dtype=np.int64)
    if labels.dtype.kind not in "iU":
        raise ValueError("classes are not names or numbers of 64 bits")
    return labels


def _settled(path: Path, head: HeadHeader, tensors: Tensors) -> Settled:
    dims, layers = head.layer_dims, head.layers
    sizes = (head.hidden, *dims, *layers)
    if not dims or not layers or not all(map(is_count, sizes)) or max(layers) > len(dims):
        raise ValueError("sizes are not whole numbers of at least 1")
    shapes = {
        "v": (head.hidden, sum(dims[layer - 1] for layer in layers)),
        "v_bias": (head.hidden,),
        "u": (dims[-1], head.hidden),
        "u_bias": (dims[-1],),
    }
    weights = MixerWeights(*(tensors[f"mixer.{name}"] for name in MixerWeights._fields))
    for name, shape in shapes.items():
        if getattr(weights, name).shape != shape:
            raise ValueError(f"mixer.{name} has shape {getattr(weights, name).shape}, not {shape}")
    options = HeadOptions(
        layer_dims=dims,
        layers=layers,
        **{name: getattr(head, name) for name in _OPTIONS},
        mixer=MixerOptions(**{name: getattr(head, name) for name in MIXER_OPTIONS}),
        renew_ridge=head.ridge_basis is not None,
        **HeadOptions.of_map(head.kernel_map),
    )
    options.check("the model")
    if not is_positive(head.chosen_ridge):
        raise ValueError(f"the ridge chosen is {head.chosen_ridge!r}")
    rows = (head.n_components or dims[-1]) + 1
    for name in ("coefficients", "class_sums"):  # before R of any size is drawn
        if name in tensors and len(tensors[name]) != rows:
            raise ValueError(f"{name} has {len(tensors[name])} rows, not {rows}")
    kernel_map = options.kernel_map(dims[-1])
    if kernel_map.entry != head.kernel_map:
        raise altered(path, "the random map drawn from its seed is another")
    ridge_path = tuple(RidgeTrial(**trial) for trial in head.ridge_path)
    layer_path = tuple(LayerTrial(**trial) for trial in head.layer_path)
    lift = Lift(ResidualMixer(dims, layers, weights), kernel_map)
    texts = read_text_samples(head.text_classes, head.text_weight, dims[-1], tensors)
    chosen = head.chosen_ridge, ridge_path, layer_path, head.ridge_basis, texts
    return Settled(options, lift, *chosen)
