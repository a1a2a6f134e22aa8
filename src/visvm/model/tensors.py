"""Sums, calibration and spread of a model ↔ tensors of its file, of which nothing is believed."""

from typing import Literal

import numpy as np

from visvm.head.checks import Labels, is_positive
from visvm.head.familiarity import DISTANCES
from visvm.head.nearness import Spread
from visvm.head.scatter import DenseScatter, ThinScatter, packed_triangle, unpacked_triangle
from visvm.head.statistics import Statistics
from visvm.head.texts import TextSamples
from visvm.model.container import Tensors
from visvm.model.labels import Label, is_forgotten
from visvm.model.state import Calibration

_MOST_PHOTOS = 1e6  # that a text may count as


def packed_sums(sums: Statistics | None) -> tuple[Literal["thin", "dense"] | None, Tensors]:
    """Return the form of sums, None without any, and their tensors."""
    if sums is None:
        return None, {}
    scatter, tensors = sums.scatter, {"class_sums": sums.class_sums}
    if isinstance(scatter, DenseScatter):
        return "dense", {
            **tensors,
            "scatter": packed_triangle(scatter.matrix),
            "cross": scatter.cross,
        }
    blocks = {f"factor.{place}": block for place, block in enumerate(scatter.blocks)}
    return "thin", {**tensors, **blocks, "targets": scatter.targets}


def read_text_samples(
    classes: list[Label], weight: float, width: int, tensors: Tensors
) -> TextSamples | None:
    """Return the texts of classes in a file, whose fused features have a width."""
    if not classes:
        return None
    if tensors["texts"].shape != (len(classes), width):
        raise ValueError("the texts have the wrong shape")
    if not is_positive(weight) or weight > _MOST_PHOTOS:
        raise ValueError("the weight of the texts is impossible")
    return TextSamples(tuple(classes), tensors["texts"], weight)


def read_calibration(n_classes: int, tensors: Tensors) -> Calibration:
    """Return the calibration in a file; its distances are missing in older ones."""
    distances = tensors.get("known.tally", np.zeros(len(DISTANCES)))
    if distances.shape != DISTANCES.shape or distances.min() < 0.0:
        raise ValueError("known.tally are no numbers of images")
    return Calibration(tensors["calibration"], n_classes, distances)


def read_spread(labels: Labels, width: int, tensors: Tensors) -> Spread | None:
    """Return the spread of features of a width in a file; older ones have none."""
    names = {name for name in tensors if name.startswith("known.")}
    if not names or "known.distances" in names:  # as in older files
        return None
    n = sum(not is_forgotten(label) for label in labels.tolist())
    spread = Spread(tensors["known.centres"], tensors["known.root"])
    if (
        "known.tally" not in names
        or spread.centres.shape != (n, width)
        or spread.root.shape != (width, width)
    ):
        raise ValueError("known.centres or known.root have the wrong shape")
    return spread


def unpacked_sums(form: str, classes: Labels, width: int, tensors: Tensors) -> Statistics:
    """Return the sums of a width in a file, in the form that its header names."""
    statistics = Statistics(width)
    if tensors["class_sums"].shape != (width + 1, len(classes)):
        raise ValueError("class_sums has the wrong shape")
    statistics.classes, statistics.class_sums = classes, tensors["class_sums"]
    if form == "dense":
        statistics.scatter = DenseScatter(
            unpacked_triangle(tensors["scatter"], width), tensors["cross"]
        )
        if tensors["cross"].shape != (width, len(classes)):
            raise ValueError("cross has the wrong shape")
        return statistics
    n_blocks = sum(name.startswith("factor.") for name in tensors)
    blocks = [tensors[f"factor.{place}"] for place in range(n_blocks)]
    wide = all(block.ndim == 2 and block.shape[1] == width for block in blocks)
    if not wide or tensors["targets"].shape != (sum(map(len, blocks)), len(classes)):
        raise ValueError("the factor has the wrong shape")
    statistics.scatter = ThinScatter(width)
    statistics.scatter.blocks, statistics.scatter.targets = blocks, tensors["targets"]
    return statistics
