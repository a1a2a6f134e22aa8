"""The paper's diagnosis of class names, from the files beside the rows."""

import re
from collections.abc import Sequence

import numpy as np

from visvm.bench.diagnoses import Diagnosis
from visvm.bench.diagnosis import Correlation
from visvm.bench.report import plots_diagnosis as plots
from visvm.bench.report.formats import count
from visvm.bench.report.pages import Block, Picture, Section, section, text_table

_INTRO = (
    "The gap of a class is 1 minus the cosine of its name and its mean image. Its gain is the "
    "accuracy of the nearest mean over that of the nearest name. A part of their correlation is "
    "built in, as the accuracy by name falls with the gap: so the gap is also compared with each "
    "accuracy alone. A cosine head is trained from names and from means; gradients are those "
    "before its first step, with all classes in the softmax. A t-SNE shows any two cones apart: "
    "the numbers beside it do not depend on it."
)
_STARTS = {"text": "names", "image": "means"}


def diagnosis(diagnoses: Sequence[Diagnosis]) -> Section | None:
    """Show what was diagnosed, data set by data set."""
    return section("Diagnosis", _INTRO, [block for each in diagnoses for block in _blocks(each)])


def _blocks(found: Diagnosis) -> list[Block]:
    where = f"{found.dataset}, {found.encoder}"
    name = re.sub(r"[^\w-]+", "-", where).strip("-")
    return [
        _intro(found, where),
        _correlations(found, where),
        Picture(
            f"gap-{name}",
            f"{where}: gap and gain of every class.",
            plots.gap_and_gain(where, found),
        ),
        *_training(found, where, name),
        _cosines(found, where),
        Picture(
            f"gradients-{name}",
            f"{where}: gradients before the first step.",
            plots.gradients(where, found),
        ),
        Picture(
            f"joint-space-{name}",
            f"{where}: t-SNE of images, class means and names.",
            plots.joint_space(where, found),
        ),
    ]


def _intro(found: Diagnosis, where: str) -> str:
    by_name, by_mean = (
        f"{100 * np.mean(accuracy):.1f}" for accuracy in (found.text_accuracy, found.image_accuracy)
    )
    return (
        f"{where}: {count(found.n_train)} training and {count(found.n_test)} test images of "
        f"{len(found.classes)} classes; the text is \u201c{found.text_of}\u201d. Accuracy by name "
        f"{by_name} %, by mean {by_mean} %; mean gap {np.mean(found.gaps):.3f}. The "
        f"means of images and of names are {found.distance:.2f} apart; a linear discriminant tells "
        f"images from names with {100 * found.separated:.1f} % balanced accuracy on held-out ones."
    )


def _correlations(found: Diagnosis, where: str) -> Block:
    lines = [
        (label, *_correlation(found.correlations[key]))
        for key, label in (
            ("gain", "gap and gain"),
            ("text", "gap and accuracy by name"),
            ("image", "gap and accuracy by mean"),
        )
    ]
    return text_table(f"Correlations, {where}", ("of", "r", "95 %", "line"), lines)


def _training(found: Diagnosis, where: str, name: str) -> list[Block]:
    settings = list(dict.fromkeys((curve.scale, curve.rate) for curve in found.curves))
    pairs = {each: [c for c in found.curves if (c.scale, c.rate) == each] for each in settings}
    lines = [
        (
            f"{curve.scale:g}",
            f"{curve.rate:g}",
            _STARTS[curve.start],
            *_ends(curve.loss, 1, 3),
            *_ends(curve.accuracy, 100, 1),
        )
        for each in settings
        for curve in pairs[each]
    ]
    first = settings[0]
    about = f"scale {first[0]:g}, rate {first[1]:g}"
    return [
        text_table(
            f"Training a cosine head, {where}",
            ("scale", "rate", "from", "first loss", "last loss", "first accuracy", "last accuracy"),
            lines,
        ),
        Picture(
            f"training-{name}",
            f"{where}: loss and accuracy by epoch, {about}.",
            plots.training(f"{where}, {about}", pairs[first]),
        ),
    ]


def _cosines(found: Diagnosis, where: str) -> Block:
    lines = [
        (_STARTS[start], f"{c.mean:.3f}", f"{c.deviation:.3f}", f"{100 * c.large:.1f} %")
        for start, c in found.cosines.items()
    ]
    return text_table(
        f"Cosines between the gradients of classes, {where}",
        ("from", "mean", "deviation", "beyond ±0.5"),
        lines,
    )


def _correlation(found: Correlation) -> tuple[str, str, str]:
    interval = "" if found.low is None else f"{found.low:.2f} to {found.high:.2f}"
    return f"{found.r:.2f}", interval, f"{found.intercept:.2f} + {found.slope:.2f} · gap"


def _ends(values: Sequence[float], factor: float, digits: int) -> tuple[str, str]:
    return tuple(f"{factor * values[place]:.{digits}f}" for place in (0, -1))  # type: ignore[return-value]
