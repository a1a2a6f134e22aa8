"""Checks of parameters, features and labels: what must be how, what was given, what to do, on one line."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visvm.errors import InputError

Labels = NDArray[np.generic]


@contextmanager
def as_input_error() -> Iterator[None]:
    """Turn a ValueError of scikit-learn's checks into ours, on one line."""
    try:
        yield
    except ValueError as error:
        raise InputError(" ".join(str(error).split())) from error


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
    """Whether this is a whole number of at least 1."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 1


def is_positive(value: object, *, or_zero: bool = False) -> bool:
    """Whether this is a finite number above 0, or at least 0."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        return False
    number = value.item() if isinstance(value, np.generic) else value
    return bool(0 < number <= sys.float_info.max or (or_zero and number == 0))


def is_filled(value: object) -> bool:
    """Whether this is a sequence with something in it."""
    return isinstance(value, (list, tuple, np.ndarray)) and len(value) > 0


def seed_of(random_state: Any) -> int:
    """An int is the seed itself; anything else scikit-learn takes gives one."""
    if isinstance(random_state, Integral) and 0 <= int(random_state) < 2**64:
        return int(random_state)
    from sklearn.utils import check_random_state

    with as_input_error():
        return int(check_random_state(random_state).randint(2**31 - 1))


def check_finite(X: NDArray[Any]) -> None:
    """Refuse NaN and infinity, naming the first."""
    with np.errstate(over="ignore", invalid="ignore"):
        finite = bool(np.isfinite(X.sum())) or bool(np.isfinite(X).all())
    if not finite:
        row, column = np.argwhere(~np.isfinite(X))[0]
        what = "NaN" if np.isnan(X[row, column]) else "infinity"
        raise InputError(
            f"X must hold finite numbers only; row {row}, column {column} is {what}: repair or leave out that row"
        )


def check_labels(y: Any, n: int, owner: str) -> Labels:
    """Labels of `n` samples, all strings or all numbers."""
    if y is None:
        raise InputError(
            f"{owner} requires y to be passed, but the target y is None: give one label for every sample"
        )
    from sklearn.utils.validation import column_or_1d

    with as_input_error():
        labels = np.asarray(
            column_or_1d(y if hasattr(y, "dtype") else np.array(y, dtype=object), warn=True)
        )
    if labels.dtype.kind in "OT":
        missing = [place for place, label in enumerate(labels) if label is None or label != label]
        if missing:
            raise InputError(
                f"Input y contains NaN or None: sample {missing[0]} has no label; give it one or leave it out"
            )
        if len({isinstance(label, str) for label in labels}) > 1:
            raise InputError("labels must be all strings or all numbers; got both: convert them")
        labels = np.array(labels.tolist())
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError("Input y contains infinity or NaN: give every sample a label")
    if labels.dtype.kind not in "biufU" or (
        labels.dtype.kind == "f" and not (labels == np.floor(labels)).all()
    ):
        raise InputError(
            f"Unknown label type: labels must be strings or whole numbers; got {labels[:3].tolist()}: convert them"
        )
    if (
        labels.dtype.kind in "uf"
        and len(labels)
        and np.abs(labels).max() >= (2**63 if labels.dtype.kind == "u" else 2**53)
    ):
        raise InputError(
            "labels must be whole numbers that a 64-bit integer holds exactly; these do not fit: use strings"
        )
    if labels.dtype.kind in "iu":
        labels = labels.astype(np.int64)
    if len(labels) != n:
        raise InputError(
            f"X and y must have as many samples as each other; got {n} and {len(labels)}: give one label a row"
        )
    return labels


def check_one_kind(classes: Labels, labels: Labels) -> None:
    """Refuse strings where the classes learned are numbers, and the other way round."""
    if len(classes) and (classes.dtype.kind == "U") != (labels.dtype.kind == "U"):
        known, given = (
            ("strings", "numbers") if classes.dtype.kind == "U" else ("numbers", "strings")
        )
        raise InputError(
            f"labels must be of one kind; the classes learned are {known}, these are {given}: convert them"
        )
