"""Masked sums of any number of sites, of which any drop out, against a plain merge."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from visvm.head.head import Head
from visvm.head.settle import HeadOptions, settle
from visvm.model import changes, masked, merging, rounds
from visvm.model.sites import SiteStatistics
from visvm.model.state import EncoderId, Model

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:The features to be merged")]


@settings(max_examples=20)
@given(st.data())
def test_the_total_is_that_of_a_plain_merge(data):
    n_sites = data.draw(st.integers(2, 6), "n_sites")
    order = data.draw(st.permutations(range(n_sites)), "order")
    dropped = set(order[: data.draw(st.integers(0, n_sites - 2), "n_dropped")])
    d, width = data.draw(st.integers(1, 6), "d"), data.draw(st.integers(1, 40), "width")
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), "seed"))
    mean = data.draw(st.sampled_from([0.0, 1.0, 30.0]), "mean")
    size = data.draw(st.sampled_from([1e-3, 1.0, 1e6]), "size")
    ridge = data.draw(st.sampled_from([1e-2, 1.0, 100.0]), "ridge") * size**2
    classes = np.array(["gull", "heron", "kite", "owl", "wren"])

    def photos(n, own):
        return (generator.normal(size=(n, d)) + mean) * size, generator.choice(classes[own], n)

    X, y = photos(20, [0, 1])
    options = HeadOptions(layer_dims=(d,), n_components=width, ridge=ridge)
    head = Head.blank(settle(X, y, options)).learned(X, y).solved()
    base = Model(EncoderId("tiny", "0" * 64, "squash"), head)
    learned, sites, keys = [(X, y)], [], []
    for number in range(n_sites):
        own = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True), "own")
        blank = changes.for_site(base, f"{number:016x}")
        learned.append(photos(data.draw(st.integers(1, 60), "n"), own))
        own_head = blank.head.learned(*learned[-1])
        sites.append(SiteStatistics(replace(blank, head=own_head, learned=("photos",))))
        keys.append(rounds.join(blank, str(number), classes[own].tolist()))
    roster = rounds.make_roster(base, [keys[number].card for number in order], 10**5)
    here = [number for number in order if number not in dropped]
    with TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.masked" for number in here]
        for number, path in zip(here, files, strict=True):
            masked.mask(keys[number], roster, sites[number]).save(path)
        if dropped:
            gone = roster.sites_named([str(number) for number in dropped])
            for number in here:
                files.append(Path(folder) / f"{number}.reveal")
                rounds.write_note(files[-1], masked.reveal(keys[number], roster, gone)[1])
        total = masked.total(base, roster, files)
    merged = merging.merged(base, [total]).head
    plain = merging.merged(base, [sites[number] for number in here]).head
    assert merged.classes.tolist() == plain.classes.tolist()
    assert merged.statistics.class_counts.tolist() == plain.statistics.class_counts.tolist()
    gram = plain.statistics.gram
    assert np.abs(merged.statistics.gram - gram).max() <= 1e-9 * np.abs(gram).max()
    rows = [learned[0], *(learned[1 + number] for number in here)]
    everything, labels = (np.concatenate(part) for part in zip(*rows, strict=True))
    phi = head.settled.lift(everything)
    wanted = reference.scores(phi, labels, phi, ridge, 10.0)
    assert reference.error(merged.scores(everything), wanted) < 1e-7
