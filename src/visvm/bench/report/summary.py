"""Rows → runs → what tables and figures show. All are shares from 0 to 1, not yet percent."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, TypeVar

import numpy as np

from visvm.bench.methods import METHODS
from visvm.bench.metrics import average_accuracy, forgetting
from visvm.bench.rows import Row, Run


def _of_kind(*kinds: str) -> tuple[str, ...]:
    return tuple(entry.name for entry in METHODS.values() if entry.kind in kinds)


OURS, ORACLE = _of_kind("ours", "oracle")
RELATIVES = _of_kind("relative")
BASELINES = _of_kind("baseline", "relative")
"""As tables show them; methods of your own stand between these and ours."""

_method_in_setting = attrgetter(
    *("run.method", "run.data_digest", "run.weights_digest", "run.transform_key"),
    *("run.protocol", "run.split"),
)

Mark = Literal["best", "second", ""]
T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True)
class FinishedRun:
    """A run with all its rows, one for each session in order."""

    run: Run
    rows: tuple[Row, ...]

    @property
    def label(self) -> str:
        """The method, with options that are not its defaults."""
        return with_options(self.run.method, self.run.options)

    @property
    def accuracies(self) -> list[float]:
        """A_1 … A_B."""
        return [row.accuracy for row in self.rows]

    @property
    def average(self) -> float:
        """Ā."""
        return average_accuracy(self.accuracies)

    @property
    def final(self) -> float:
        """A_B."""
        return self.rows[-1].accuracy

    @property
    def forgetting(self) -> float | None:
        """F_B; None for a single session."""
        return forgetting([row.group_accuracy for row in self.rows])

    @property
    def seen(self) -> list[int]:
        """Classes seen after each session."""
        return [sum(row.session_sizes) for row in self.rows]

    @property
    def class_names(self) -> list[str]:
        """Names of all classes, by arrival."""
        return [name for row in self.rows for name in row.new_classes]

    @property
    def learn_seconds(self) -> float:
        """All sessions together."""
        return sum(row.seconds["learn"] for row in self.rows)

    @property
    def predict_seconds(self) -> float:
        """All sessions together."""
        return sum(row.seconds["predict"] for row in self.rows)

    @property
    def predict_seconds_per_image(self) -> float:
        """The head alone, over all sessions."""
        return self.predict_seconds / sum(row.n_test for row in self.rows)

    @property
    def encode_seconds_per_image(self) -> float | None:
        """The encoder; None where no row says it."""
        recorded = [row.seconds["encode"] for row in self.rows if "encode" in row.seconds]
        return float(np.mean(recorded)) if recorded else None

    @property
    def peak_memory(self) -> int | None:
        """The most of any session, in bytes; None where no row says it."""
        recorded = [row.peak_memory for row in self.rows if row.peak_memory is not None]
        return max(recorded, default=None)

    @property
    def n_images(self) -> int:
        """Images learned, and those tested on in the end."""
        return sum(row.n_train for row in self.rows) + self.rows[-1].n_test


@dataclass(frozen=True)
class UnfinishedRun:
    """A run some of whose rows are missing: the report names it, and shows none of its numbers."""

    run: Run
    sessions: tuple[int, ...]
    n_sessions: int


@dataclass(frozen=True)
class MeanAndStd:
    """Mean and sample standard deviation over runs, of a number or of each session's."""

    mean: Any
    std: Any


def collect(rows: Sequence[Row]) -> tuple[list[FinishedRun], list[UnfinishedRun]]:
    """Put rows together to runs; of two rows of one session the later counts.

    Of a method in a setting only the newest revision counts, even for seeds and options that were
    not measured again: means must not mix two programs.
    """
    finished, unfinished = [], []
    newest = {
        where: max(row.run.revision for row in same)
        for where, same in grouped(rows, _method_in_setting).items()
    }
    current = [row for row in rows if row.run.revision == newest[_method_in_setting(row)]]
    for group in grouped(current, lambda row: row.run.key).values():
        by_session = {row.session: row for row in group}
        run, n_sessions = group[0].run, group[-1].n_sessions
        if sorted(by_session) == list(range(1, n_sessions + 1)):
            ordered = tuple(by_session[session] for session in sorted(by_session))
            finished.append(FinishedRun(run, ordered))
        else:
            unfinished.append(UnfinishedRun(run, tuple(sorted(by_session)), n_sessions))
    return finished, unfinished


def competes(method: str) -> bool:
    """Return whether this is a rival: neither ours, nor a relative of ours, nor the oracle."""
    return method not in (OURS, ORACLE, *RELATIVES)


def marks(values: Sequence[float | None], shown: Sequence[str], lowest: bool = False) -> list[Mark]:
    """Mark the best of the values, and the second; what is shown as the same text shares its place.

    Nothing is marked where fewer than two different texts are there.

    Examples
    --------
    >>> marks([0.5, None, 0.7, 0.70001], ["50.00", "–", "70.00", "70.00"])
    ['second', '', 'best', 'best']
    """
    order = sorted(
        ((value, text) for value, text in zip(values, shown, strict=True) if value is not None),
        reverse=not lowest,
    )
    texts = list(dict.fromkeys(text for _, text in order))
    names: dict[str, Mark] = {texts[0]: "best", texts[1]: "second"} if len(texts) > 1 else {}
    return [
        "" if value is None else names.get(text, "")
        for value, text in zip(values, shown, strict=True)
    ]


def spread(values: Sequence[Any]) -> MeanAndStd:
    """Return mean and sample standard deviation (n - 1) over the first axis; 0 for one value.

    Examples
    --------
    >>> over = spread([0.25, 0.75])
    >>> float(over.mean), round(float(over.std), 4)
    (0.5, 0.3536)
    """
    array = np.asarray(values, dtype=float)
    std = array.std(axis=0, ddof=1) if len(array) > 1 else np.zeros(array.shape[1:])
    return MeanAndStd(array.mean(axis=0)[()], std[()])


def environments(rows: Iterable[Row]) -> dict[str, list[str]]:
    """Collect all values of everything that rows say of machine and versions.

    The digest of the head is neither of these, and left out; some rows may not say all.
    """
    said = [row.environment for row in rows]

    def text(value: object) -> str:
        return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

    names = dict.fromkeys(name for environment in said for name in environment if name != "head")
    return {
        name: list(dict.fromkeys(text(each.get(name, "not recorded")) for each in said))
        for name in names
    }


def in_order(runs: Iterable[FinishedRun]) -> list[FinishedRun]:
    """Sort runs as tables show them: baselines, methods of your own, ours, the oracle."""
    order = {method: place for place, method in enumerate((*BASELINES, None, OURS, ORACLE))}

    def place(each: FinishedRun) -> tuple[Any, ...]:
        method = order.get(each.run.method, order[None])
        return method, by_number(each.label), each.run.class_order_seed, each.run.seed

    return sorted(runs, key=place)


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group items by their key, in the order of appearance."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def with_options(method: str, options: dict[str, Any]) -> str:
    """Return a method's name, with its options where there are any."""
    said = ", ".join(f"{name}={value}" for name, value in sorted(options.items()))
    return f"{method} ({said})" if said else method


def by_number(text: str) -> list[Any]:
    """Return a sorting key in which B50 comes before B100."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]
