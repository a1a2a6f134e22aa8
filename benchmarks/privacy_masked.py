"""What masked sums cost, and how near their total is to a plain merge."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from visvm.bench.streams import Samples
from visvm.head.fusion import MixerOptions
from visvm.head.head import Head
from visvm.head.settle import HeadOptions, settle
from visvm.model import changes, masked, merging, rounds
from visvm.model.sites import SiteStatistics
from visvm.model.state import EncoderId, Model

WIDTHS, N_SITES, N_BASE = (500, 2000), 5, 50  # classes of the base
MIXER = MixerOptions(hidden=8, epochs=1)  # which a model file must have


def costs(train: Samples, test: Samples) -> Iterator[dict[str, Any]]:
    """Yield sizes, CPU seconds, errors and accuracies of rounds of five sites."""
    names = np.array([f"{number:03d}" for number in range(200)])
    base, rest = (np.flatnonzero(mask) for mask in _halves(train.targets < N_BASE))
    labels = names[train.targets]
    for width in WIDTHS:
        options = HeadOptions(
            layer_dims=(train.features.shape[1],), n_components=width, mixer=MIXER
        )
        X, y = train.features[base], labels[base]
        head = Head.blank(settle(X, y, options)).learned(X, y).solved()
        model = Model(EncoderId("dinov2-s14", "0" * 64, "squash"), head)
        sites, keys = [], []
        for number in range(N_SITES):
            blank, rows = changes.for_site(model, f"{number:016x}"), rest[number::N_SITES]
            sums = blank.head.learned(train.features[rows], labels[rows])
            sites.append(SiteStatistics(replace(blank, head=sums)))
            keys.append(rounds.join(blank, f"site {number}", names.tolist()))
        roster = rounds.make_roster(model, [key.card for key in keys], 10**6)
        sizes = {"D": width, "photos": len(rest)}
        yield {**sizes, **_round(model, roster, keys, sites, names[test.targets], test.features)}


def _halves(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return mask, ~mask


def _round(
    model: Model,
    roster: rounds.Roster,
    keys: list[rounds.Key],
    sites: list[SiteStatistics],
    labels: np.ndarray,
    features: np.ndarray,
) -> dict[str, Any]:
    """Return what one round costs; the last site drops out of a second one."""
    with TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.masked" for number in range(len(sites))]
        times = []
        for key, site, path in zip(keys, sites, files, strict=True):
            begin = time.process_time()
            masked.mask(key, roster, site).save(path)
            times.append(time.process_time() - begin)
        sites[0].save(Path(folder) / "plain.sums", reveal_features=True)
        sizes = [each.stat().st_size for each in (files[0], Path(folder) / "plain.sums")]
        begin = time.process_time()
        whole = masked.total(model, roster, files)
        seconds = time.process_time() - begin
        gone, reveals = [keys[-1].card.site], []
        for number, key in enumerate(keys[:-1]):
            reveals.append(Path(folder) / f"{number}.reveal")
            rounds.write_note(reveals[-1], masked.reveal(key, roster, gone)[1])
        begin = time.process_time()
        partly = masked.total(model, roster, files[:-1] + reveals)
        seconds_partly = time.process_time() - begin
    row = {"masked": sizes[0], "plain": sizes[1], "mask_seconds": float(np.mean(times))}
    row |= {"total_seconds": seconds, "dropped_seconds": seconds_partly}
    for what, given, plain in (("all", whole, sites), ("dropped", partly, sites[:-1])):
        one, other = (merging.merged(model, each).head for each in ([given], plain))
        scores = [each.scores(features) for each in (one, other)]
        gram = other.statistics.gram
        row |= {
            f"{what}_sums_error": float(
                np.abs(one.statistics.gram - gram).max() / np.abs(gram).max()
            ),
            f"{what}_scores_error": float(np.abs(scores[0] - scores[1]).max()),
            f"{what}_accuracies": [
                100 * float((other.classes[each.argmax(axis=1)] == labels).mean())
                for each in scores
            ],
        }
    return row
