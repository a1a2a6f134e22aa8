"""A fitted head ↔ JSON and tensors, as a model file holds them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visvm.errors import ModelFileError, shown
from visvm.head.calibration import INVERSE_TEMPERATURES
from visvm.head.checks import is_count, is_positive
from visvm.head.fusion import MixerOptions, MixerWeights, ResidualMixer
from visvm.head.kernel_map import KernelMap
from visvm.head.predictor import Predictor
from visvm.head.scatter import DenseScatter, ThinScatter, packed, unpacked
from visvm.head.selection import LayerTrial, RidgeTrial
from visvm.head.statistics import Statistics
from visvm.model.file import Header, Tensors, altered

if TYPE_CHECKING:
    from visvm.head.estimators import VisClassifier

_OPTIONS = ("n_components", "ridge", "svm_cost", *(field.name for field in fields(MixerOptions)))


def head_state(head: "VisClassifier", *, solved: bool = True) -> tuple[Header, Tensors]:
    """A fitted head as JSON and tensors; one without sums gives what predicting needs, one not `solved` all but that."""
    kernel_map = head.kernel_map_
    header = {
        **{name: _plain(getattr(head, name)) for name in _OPTIONS},
        "layer_dims": list(head.mixer_.layer_dims),
        "layers": list(head.layers_),
        "chosen_ridge": head.ridge_,
        "ridge_path": [trial._asdict() for trial in head.ridge_path_],
        "layer_path": [trial._asdict() for trial in head.layer_path_],
        "kernel_map": {"seed": kernel_map.seed, "digest": kernel_map.digest},
        "form": None,
        **({} if solved else {"solved": False}),
    }
    tensors = {f"mixer.{name}": value for name, value in head.mixer_.weights._asdict().items()}
    if solved:
        tensors["coefficients"] = head.coefficients_
    if hasattr(head, "statistics_"):
        tensors["class_sums"] = head.statistics_.class_sums
        scatter = head.statistics_.scatter
        if isinstance(scatter, ThinScatter):
            header["form"] = "thin"
            tensors |= {f"factor.{place}": block for place, block in enumerate(scatter.blocks)}
            tensors["targets"] = scatter.targets
        else:
            header["form"] = "dense"
            tensors |= {"scatter": packed(scatter.matrix), "cross": scatter.cross}
    return header, {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}


def _plain(value: Any) -> Any:
    """A number of numpy's as one of Python's, which JSON takes."""
    return value.item() if isinstance(value, np.generic) else value


def require_solved(path: Path, header: Header) -> None:
    """Refuse a head that has sums and no coefficients."""
    if not header.get("solved", True):
        name = shown(Path(path.name))
        raise ModelFileError(
            f"{shown(path)} holds sums and no model to ask: add it to one with 'visvm merge OUT MODEL {name}'"
        )


def restore_predictor(
    path: Path, header: Header, classes: list[Any], tensors: Tensors
) -> Predictor:
    """What predicts, of a head that `head_state` described; one that is not solved knows no class.

    A file whose parts do not fit together is refused.
    """
    with _fitting_together(path):
        solved = header.get("solved", True)
        dims, layers = tuple(map(int, header["layer_dims"])), tuple(map(int, header["layers"]))
        n_components, hidden = header["n_components"], header["hidden"]
        sizes = (
            (hidden, *dims, *layers)
            if n_components is None
            else (n_components, hidden, *dims, *layers)
        )
        if not all(map(is_count, sizes)):
            raise ValueError("sizes are no whole numbers of at least 1")
        width = dims[-1] if n_components is None else n_components
        shapes = {
            "mixer.v": (hidden, sum(dims[layer - 1] for layer in layers)),
            "mixer.v_bias": (hidden,),
            "mixer.u": (dims[-1], hidden),
            "mixer.u_bias": (dims[-1],),
            **({"coefficients": (width + 1, len(classes))} if solved else {}),
            "calibration": INVERSE_TEMPERATURES.shape,
        }
        for name, shape in shapes.items():
            if tensors[name].shape != shape:
                raise ValueError(f"{name} has shape {tensors[name].shape}, not {shape}")
        mixer = ResidualMixer(
            dims, layers, MixerWeights(*(tensors[f"mixer.{name}"] for name in MixerWeights._fields))
        )
        kernel_map = KernelMap(dims[-1], n_components, header["kernel_map"]["seed"])
        if kernel_map.digest != header["kernel_map"]["digest"]:
            raise altered(
                path, "the random map drawn from its seed is not the one it was made with"
            )
        labels = np.array(classes) if classes else np.empty(0, dtype=np.int64)
        if labels.dtype.kind not in "iU":
            raise ValueError("classes are no names or numbers of 64 bits")
        if not solved:
            return Predictor(mixer, kernel_map, np.empty((width + 1, 0)), labels[:0])
        return Predictor(mixer, kernel_map, tensors["coefficients"], labels)


def restore_head(
    path: Path, header: Header, classes: list[Any], tensors: Tensors
) -> "VisClassifier":
    """The head that `head_state` described, ready to learn more if its sums are there."""
    from visvm.head.estimators import VisClassifier

    parts = restore_predictor(path, header, classes, tensors)
    with _fitting_together(path):
        dims, layers = parts.mixer.layer_dims, parts.mixer.layers
        # which early files do not name: there was no other
        options = {"optimizer": "sgd", **header}
        head = VisClassifier(
            layer_dims=dims, layers=layers, **{name: options[name] for name in _OPTIONS}
        )
        head._validate_parameters()
        head.n_features_in_ = sum(dims)
        head.layers_, head.ridge_ = layers, header["chosen_ridge"]
        if not is_positive(head.ridge_):
            raise ValueError(f"the ridge chosen is {head.ridge_!r}")
        head.ridge_path_ = [RidgeTrial(**trial) for trial in header["ridge_path"]]
        head.layer_path_ = [
            LayerTrial(**{**trial, "layers": tuple(trial["layers"])})
            for trial in header["layer_path"]
        ]
        head.seed_ = head.random_state = parts.kernel_map.seed
        head.classes_, head.coefficients_ = parts.classes, parts.coefficients
        head.mixer_, head.kernel_map_ = parts.mixer, parts.kernel_map
        if header["form"] is not None:
            labels = parts.classes if header.get("solved", True) else np.array(classes)
            head.statistics_ = _restore_statistics(
                header["form"], labels, parts.kernel_map.width, tensors
            )
    return head


@contextmanager
def _fitting_together(path: Path) -> Iterator[None]:
    """Turn what a crafted file leads to into one clear line."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise altered(
            path, f"its parts do not fit together ({' '.join(repr(error).split())})"
        ) from error


def _restore_statistics(
    form: str, classes: NDArray[np.generic], width: int, tensors: Tensors
) -> Statistics:
    statistics = Statistics(width)
    if tensors["class_sums"].shape != (width + 1, len(classes)):
        raise ValueError("class_sums has the wrong shape")
    statistics.classes, statistics.class_sums = classes, tensors["class_sums"]
    if form == "dense":
        statistics.scatter = DenseScatter(unpacked(tensors["scatter"], width), tensors["cross"])
        if tensors["cross"].shape != (width, len(classes)):
            raise ValueError("cross has the wrong shape")
        return statistics
    scatter = ThinScatter(width)
    scatter.blocks = [
        tensors[f"factor.{place}"]
        for place in range(sum(name.startswith("factor.") for name in tensors))
    ]
    scatter.targets = tensors["targets"]
    rows = sum(len(block) for block in scatter.blocks)
    if any(
        block.ndim != 2 or block.shape[1] != width for block in scatter.blocks
    ) or scatter.targets.shape != (
        rows,
        len(classes),
    ):
        raise ValueError("the factor has the wrong shape")
    statistics.scatter = scatter
    return statistics
