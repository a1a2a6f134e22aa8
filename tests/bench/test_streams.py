import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from visvm.bench.streams import (
    ClassStream,
    Samples,
    class_order,
    plain_protocol,
    session_sizes,
    validation_split,
)
from visvm.errors import InputError

# As the peers' published logs have them.
GOLDEN = {
    100: [68, 56, 78, 8, 23, 84, 90, 65, 74, 76],
    200: [168, 136, 51, 9, 183, 101, 171, 99, 42, 159],
    300: [169, 221, 146, 296, 92, 229, 49, 70, 126, 77],
}


@pytest.mark.parametrize("n_classes", GOLDEN)
def test_the_order_of_the_classes_is_the_published_one(n_classes):
    order = class_order(n_classes, 1993)
    assert order[:10] == GOLDEN[n_classes]
    assert sorted(order) == list(range(n_classes))
    assert class_order(n_classes, 1994)[:10] != GOLDEN[n_classes]


@pytest.mark.parametrize(
    ("protocol", "n_classes", "sizes"),
    [
        ("B0 Inc10", 100, [10] * 10),
        ("B50 Inc10", 100, [50] + [10] * 5),
        ("B0 Inc30", 100, [30, 30, 30, 10]),
        ("B100 Inc20", 200, [100] + [20] * 5),
        ("B0 Inc1", 4, [1, 1, 1, 1]),
        ("b-2 inc-3", 10, [2, 3, 3, 2]),
        ("B100 Inc10", 100, [100]),
        ("sessions 20,20,20", 200, [20, 20, 20]),
        ("5,1,4", 10, [5, 1, 4]),
    ],
)
def test_session_sizes(protocol, n_classes, sizes):
    assert session_sizes(protocol, n_classes) == sizes


@pytest.mark.parametrize("protocol", ["", "B0", "B-1", "ten"])
def test_what_is_no_protocol_is_refused(protocol):
    with refused("protocol-unknown", InputError):
        session_sizes(protocol, 10)


@pytest.mark.parametrize(
    "protocol", ["B0 Inc0", "B0 Inc11", "B11 Inc1", "sessions 5,6", "sessions 5,0"]
)
def test_protocols_that_do_not_fit_are_refused(protocol):
    with refused("protocol-misfit", InputError) as refusal:
        session_sizes(protocol, 10)
    assert protocol in str(refusal.value)


def test_a_protocol_has_one_way_to_be_written():
    assert plain_protocol(" b-0  inc-10 ") == plain_protocol("B0 Inc10") == "B0 Inc10"
    assert plain_protocol("3,2") == plain_protocol("sessions 3,2")


def samples(n_classes=6, per_class=5, seed=0):
    generator = np.random.default_rng(seed)
    targets = generator.permutation(np.repeat(np.arange(n_classes), per_class))
    return Samples(generator.normal(size=(len(targets), 3)).astype(np.float32), targets)


@given(st.integers(1, 12), st.integers(0, 12), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_every_class_arrives_once_with_all_its_images(n_classes, base, increment, seed):
    if max(base, increment) > n_classes:
        return
    train, test = samples(n_classes, 3, seed=1), samples(n_classes, 2, seed=2)
    order = class_order(n_classes, seed)
    stream = ClassStream(train, test, order, session_sizes(f"B{base} Inc{increment}", n_classes))
    arrived = []
    for session in stream:
        assert session.classes == order[len(arrived) : len(arrived) + len(session.classes)]
        arrived += session.classes
        for features, label in zip(session.features, session.labels, strict=True):
            place = np.flatnonzero((train.features == features).all(axis=1))
            assert train.targets[place] == arrived[label]
        features, labels = stream.test()
        assert len(labels) == 2 * len(arrived)
        assert [arrived[label] for label in labels] == [
            test.targets[np.flatnonzero((test.features == row).all(axis=1))[0]] for row in features
        ]
    assert sorted(arrived) == list(range(n_classes))


def test_test_images_come_only_after_a_session():
    stream = ClassStream(samples(), samples(), list(range(6)), [3, 3])
    with refused("session-missing"):
        stream.test()


def test_what_is_handed_out_leads_to_nothing_else():
    """An array that was a view would give away all images through its base."""
    stream = ClassStream(samples(), samples(), list(range(6)), [3, 3])
    for session in stream:
        assert session.features.base is None
        assert session.labels.base is None
        assert session.labels.max() < sum(stream.sizes)


def test_validation_takes_a_fifth_of_every_class():
    whole = samples(n_classes=4, per_class=10)
    train, validation = validation_split(whole)
    assert np.bincount(train.targets).tolist() == [8] * 4
    assert np.bincount(validation.targets).tolist() == [2] * 4
    both = np.concatenate([train.features, validation.features])
    assert sorted(map(tuple, both)) == sorted(map(tuple, whole.features))
    with refused("class-too-small", InputError):
        validation_split(samples(per_class=1))
    assert np.bincount(validation_split(samples(n_classes=2, per_class=2))[1].targets).tolist() == [
        1,
        1,
    ]


def test_the_validation_split_is_the_one_that_rows_were_measured_with():
    targets = np.repeat(np.arange(3), 5)
    places = np.arange(15, dtype=np.float32)[:, None]
    _, validation = validation_split(Samples(places, targets))
    assert validation.features[:, 0].tolist() == [1.0, 8.0, 13.0]
