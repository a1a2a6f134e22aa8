"""Which runs may be compared: those that share images, encoder, transform and protocol."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from visvm.bench.report.summary import (
    ORACLE,
    OURS,
    FinishedRun,
    by_number,
    grouped,
    in_order,
    with_options,
)
from visvm.bench.rows import Run

CLASS_ORDER_SEED = 1993
"""The paper's, and that of everybody else."""

SENSITIVE = {"identity_weight": 0.01, "n_components": 15000}
"""The two options of the sensitivity study, with what a run of ours has that does not name them."""

Seeds = Literal["class_order_seed", "seed"]


@dataclass(frozen=True)
class Setting:
    """What runs must share to be compared: images, encoder, transform and protocol."""

    data: str  # a name to show, different wherever the images are
    encoder: str  # likewise, different wherever the weights or the transform are
    first: Run  # one of the runs, for all that they share
    runs: tuple[FinishedRun, ...]

    @property
    def stream(self) -> str:
        """Data set and protocol."""
        return f"{self.data} {self.first.protocol}"

    @property
    def stacked(self) -> str:
        """The data set and below it the protocol, for narrow places."""
        return f"{self.data}\n{self.first.protocol}"

    @property
    def label(self) -> str:
        """Data set, protocol and encoder."""
        return f"{self.stream}, {self.encoder}"

    @property
    def standard(self) -> dict[str, FinishedRun]:
        """The runs of the main table, by label: the usual class order, seed 0, test images.

        Where no run has that order and seed, they are the least that some have. Options are the
        defaults; a method that was run with others only is taken with these, and its labels say
        them.
        """

        def seeds(run: Run) -> tuple[bool, int, int]:
            return run.class_order_seed != CLASS_ORDER_SEED, run.class_order_seed, run.seed

        tested = [each for each in self.runs if each.run.split == "test"]
        least = min((seeds(each.run) for each in tested), default=None)
        first = [each for each in tested if seeds(each.run) == least]
        chosen = []
        for runs in grouped(first, attrgetter("run.method")).values():
            chosen += [each for each in runs if not each.run.options] or runs
        return {each.label: each for each in in_order(chosen)}

    @property
    def focus(self) -> FinishedRun | None:
        """The run to look at closely: ours, or where it was not run the best."""
        standard = [each for each in self.standard.values() if each.run.method != ORACLE]
        ours = [each for each in standard if each.run.method == OURS]
        return max(ours or standard, key=lambda each: each.final, default=None)


def settings(runs: Sequence[FinishedRun], datasets: Sequence[str] = ()) -> list[Setting]:
    """Group runs by what they must share to be compared; these data sets come first."""
    images: dict[str, int] = {}
    for each in runs:
        images[each.run.data_digest] = max(images.get(each.run.data_digest, 0), each.n_images)
    data = _labels(
        ((each.run.data_digest,), each.run.dataset, f"{images[each.run.data_digest]} images")
        for each in runs
    )
    encoders = _labels(
        ((each.run.weights_digest, each.run.transform_key), each.run.encoder, each.run.transform)
        for each in runs
    )

    def one(group: list[FinishedRun]) -> Setting:
        run = group[0].run
        encoder = encoders[run.weights_digest, run.transform_key]
        return Setting(data[run.data_digest,], encoder, run, tuple(group))

    def place(setting: Setting) -> tuple[Any, ...]:
        name = setting.first.dataset
        known = datasets.index(name) if name in datasets else len(datasets)
        return setting.encoder, known, setting.data, by_number(setting.first.protocol)

    key = attrgetter("run.data_digest", "run.weights_digest", "run.transform_key", "run.protocol")
    return sorted(map(one, grouped(runs, key).values()), key=place)


def repeated(setting: Setting, over: Seeds) -> dict[str, list[FinishedRun]]:
    """Find runs on test images that differ in a seed alone, two or more of each label."""
    fixed: dict[Seeds, int] = {"class_order_seed": CLASS_ORDER_SEED, "seed": 0}
    (other,) = fixed.keys() - {over}
    runs = [
        each
        for each in in_order(setting.runs)
        if each.run.split == "test" and getattr(each.run, other) == fixed[other]
    ]
    by_label = grouped(runs, attrgetter("label"))
    return {label: group for label, group in by_label.items() if len(group) > 1}


def sensitivity(setting: Setting) -> dict[str, list[FinishedRun]]:
    """Find runs of ours on validation images that differ in one of the two options studied alone.

    They are grouped by whatever other options they have.
    """

    def rest(each: FinishedRun) -> str:
        others = {name: value for name, value in each.run.options.items() if name not in SENSITIVE}
        return with_options(each.run.method, others)

    runs = [
        each
        for each in setting.runs
        if each.run.method == OURS
        and each.run.split == "validation"
        and all(isinstance(option(each, name), int | float) for name in SENSITIVE)
    ]
    found = {}
    for label, group in grouped(runs, rest).items():
        drawn = [line for name in SENSITIVE for line in lines(group, name).values()]
        shown = {each.run.key for line in drawn for each in line}
        found[label] = [each for each in group if each.run.key in shown]
    return {label: group for label, group in found.items() if group}


def lines(group: Sequence[FinishedRun], name: str) -> dict[Any, list[FinishedRun]]:
    """Find runs with two or more values of an option, by the other one, its default first."""
    (other,) = (each for each in SENSITIVE if each != name)
    by_other = grouped(group, lambda each: option(each, other))
    order = sorted(by_other, key=lambda value: (value != SENSITIVE[other], value))
    return {
        value: by_other[value]
        for value in order
        if len({option(each, name) for each in by_other[value]}) > 1
    }


def option(each: FinishedRun, name: str) -> Any:
    """Return what a run has for one of the two options studied."""
    return each.run.options.get(name, SENSITIVE[name])


def elsewhere(setting: Setting) -> list[FinishedRun]:
    """Find runs that none of the comparisons takes in."""
    seeds = repeated(setting, "class_order_seed"), repeated(setting, "seed")
    groups = [group for found in (*seeds, sensitivity(setting)) for group in found.values()]
    shown = {each.run.key for group in (setting.standard.values(), *groups) for each in group}
    return [each for each in setting.runs if each.run.key not in shown]


def _labels(named: Iterable[tuple[tuple[str, ...], str, str]]) -> dict[tuple[str, ...], str]:
    """Name digests by the last part of a path, and where several share it by what differs."""
    labels: dict[tuple[str, ...], str] = {}
    details: dict[tuple[str, ...], tuple[str, ...]] = {}
    for digests, name, detail in named:
        labels.setdefault(digests, re.split(r"[/\\]", name.rstrip("/\\"))[-1] or name)
        details.setdefault(digests, (detail, digests[0][:8], digests[-1]))
    for place in range(3):
        counts = Counter(labels.values())
        for each, label in labels.items():
            if counts[label] > 1:
                labels[each] = f"{label}, {details[each][place]}"
    return labels
