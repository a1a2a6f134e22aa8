"""Checks of parameters, features and labels that come from outside."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visvm.errors import InputError

Labels = NDArray[np.generic]

LEAST = 1e-140  # of features; their squares keep all digits
LEAST_WEIGHT = 1e-50


@contextmanager
def as_input_error(code: str) -> Iterator[None]:
    """Turn a ValueError of scikit-learn's checks into ours, on one line."""
    try:
        yield
    except ValueError as error:
        raise InputError(" ".join(str(error).split()), code=code) from error


def require(holds: bool, estimator: object, name: str, what: str) -> None:
    """Refuse a parameter that is not `what` it must be."""
    if not holds:
        raise parameter_error(type(estimator).__name__, name, getattr(estimator, name), what)


def parameter_error(owner: str, name: str, value: object, what: str) -> InputError:
    """Return the error for a parameter that is not `what` it must be."""
    return InputError(
        f"The {name!r} parameter of {owner} must be {what}. Got {value!r} instead.",
        code=f"parameter-{name.replace('_', '-')}",
    )


def is_count(value: object) -> bool:
    """Return whether this is a whole number of at least 1."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 1


def is_positive(value: object, *, or_zero: bool = False) -> bool:
    """Return whether this is a finite number above 0, or at least 0."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        return False
    number = value.item() if isinstance(value, np.generic) else value
    return bool(0 < number <= sys.float_info.max or (or_zero and number == 0))


def is_filled(value: object) -> bool:
    """Return whether this is a sequence with something in it."""
    return isinstance(value, (list, tuple, np.ndarray)) and len(value) > 0


def seed_of(random_state: Any) -> int:
    """Return an int as it is, and draw one from anything else that scikit-learn takes."""
    if isinstance(random_state, Integral) and 0 <= int(random_state) < 2**64:
        return int(random_state)
    from sklearn.utils import check_random_state

    with as_input_error("parameter-random-state"):
        return int(check_random_state(random_state).randint(2**31 - 1))


def is_finite(array: NDArray[Any]) -> bool:
    """Return whether there is neither NaN nor infinity in an array; mostly its sum shows it."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum()) or np.isfinite(array).all())


def check_finite(X: NDArray[Any]) -> None:
    """Refuse NaN and infinity, naming the first."""
    if not is_finite(X):
        row, column = np.argwhere(~np.isfinite(X))[0]
        what = "NaN" if np.isnan(X[row, column]) else "infinity"
        raise InputError(
            f"Input contains {what}: row {row}, column {column} of X. Repair or remove that row.",
            code="features-not-finite",
        )


def check_scale(X: NDArray[Any]) -> None:
    """Refuse features to learn whose squares, all of them, are below what float64 holds."""
    if 0.0 < max(X.max(initial=0.0), -X.min(initial=0.0)) < LEAST:
        raise InputError(
            f"No feature is larger than {LEAST:g}, so their squares vanish in float64. "
            "Scale them up.",
            code="features-vanish",
        )


def check_weights(weight: NDArray[np.float64]) -> None:
    """Refuse weights above zero whose products with features could vanish or overflow."""
    if not (weight.min() >= LEAST_WEIGHT and weight.max() <= 1.0 / LEAST_WEIGHT):
        raise InputError(
            f"Values of sample_weight must be 0, or from {LEAST_WEIGHT:g} to "
            f"{1.0 / LEAST_WEIGHT:g}. Scale them.",
            code="weights-range",
        )


def check_labels(y: Any, n: int, owner: str) -> Labels:
    """Return the labels of `n` samples as an array, all strings or all numbers."""
    if y is None:
        raise InputError(
            f"{owner} requires y to be passed, but the target y is None. Give every row a label.",
            code="labels-missing",
        )
    from sklearn.utils.validation import column_or_1d

    with as_input_error("labels-shape"):
        labels = np.asarray(
            column_or_1d(y if hasattr(y, "dtype") else np.array(y, dtype=object), warn=True)
        )
    if labels.dtype.kind in "OT":
        _check_objects(labels)
        labels = np.array(labels.tolist())
    _check_values(labels)
    if labels.dtype.kind in "iu":
        labels = labels.astype(np.int64)
    if len(labels) != n:
        raise InputError(
            f"X has {n} rows, but y has {len(labels)} labels. Give one label for each row.",
            code="labels-count",
        )
    return labels


def _check_objects(labels: Labels) -> None:
    """Refuse missing labels, and strings beside numbers."""
    for place, label in enumerate(labels):
        if label is None or label != label:
            raise _unlabelled(place)
    if len({isinstance(label, str) for label in labels}) > 1:
        raise InputError(
            "Some labels are strings and others are numbers. Convert them to one kind.",
            code="labels-mixed",
        )


def _unlabelled(place: int) -> InputError:
    return InputError(
        f"Input y contains NaN, None or infinity: sample {place} has no label. "
        "Label that sample, or remove it.",
        code="label-missing",
    )


def _check_values(labels: NDArray[Any]) -> None:
    """Refuse labels that are neither strings nor whole numbers of 64 bits."""
    kind = labels.dtype.kind
    if kind == "f" and not np.isfinite(labels).all():
        raise _unlabelled(int(np.isfinite(labels).argmin()))
    if kind not in "biufU" or (kind == "f" and not (labels == np.floor(labels)).all()):
        raise InputError(
            f"Unknown label type: {labels[:3].tolist()}. Use strings or whole numbers.",
            code="label-type",
        )
    largest = 2**63 if kind == "u" else 2**53
    if kind in "uf" and len(labels) and np.abs(labels).max() >= largest:
        raise InputError(
            "Some labels are too large to be held exactly as 64-bit integers. Use strings.",
            code="label-too-large",
        )


def names_of(classes: Labels) -> str:
    """Return the first classes as a message names them.

    Examples
    --------
    >>> names_of(np.array(["gull", "owl"])), names_of(np.arange(9)), names_of(np.array([]))
    ("'gull', 'owl'", '0, 1, 2, 3, 4, …', 'none')
    """
    names = [repr(name) for name in classes[:5].tolist()]
    return ", ".join(names + ["…"] * (len(classes) > 5)) or "none"


def suggestion(label: object, classes: Labels) -> str:
    """Return what helps where there is no such class: the name most like it, or some of them.

    Examples
    --------
    >>> suggestion("Robbin", np.array(["robin", "wren"])), suggestion("owl", np.array(["wren"]))
    ("Did you mean 'robin'?", "Known: 'wren'.")
    """
    names = {name.casefold(): name for name in classes.tolist() if isinstance(name, str) and name}
    if isinstance(label, str):
        for close in get_close_matches(label.casefold(), names, n=1):
            return f"Did you mean {names[close]!r}?"
    return f"Known: {names_of(classes)}."


def check_one_kind(classes: Labels, labels: Labels) -> None:
    """Refuse strings where the classes learned are numbers, and the other way round."""
    strings = classes.dtype.kind == "U"
    if len(classes) and strings != (labels.dtype.kind == "U"):
        known, given = ("strings", "numbers") if strings else ("numbers", "strings")
        raise InputError(
            f"The classes learned are {known}, but these labels are {given}. Convert the labels.",
            code="labels-other-kind",
        )
