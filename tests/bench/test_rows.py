import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.refusals import refused
from visvm.bench.methods import METHODS
from visvm.bench.rows import FILE_NAME, Results, Row, Run, open_for_appending, parse, read_rows
from visvm.errors import InputError

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[2] / "results"

RUN = Run(
    "cub200",
    "d1",
    "dinov2-s14",
    "w1",
    "squash",
    "t1",
    "B0 Inc20",
    1993,
    "vis",
    1,
    0,
    {"n_components": 50},
)


def row(session=1, run=RUN):
    return Row(
        run=run,
        session=session,
        n_sessions=2,
        new_classes=["a <b>", "ü"],
        session_sizes=[2] * session,
        n_train=10,
        n_test=4,
        accuracy=0.5,
        group_accuracy=[0.5] * session,
        old_accuracy=None,
        new_accuracy=None,
        harmonic_mean=None,
        class_correct=[1, 1] * session,
        class_counts=[2, 2] * session,
        confusions=[(0, 1, 1)],
        seconds={"learn": 1.0, "predict": 1},
        peak_memory=None,
        trainable_parameters=0,
        state_bytes=8,
        choices={"ridge": 1.0},
        load_average=None,
        environment={"visvm": "0"},
        measured_at="2026-01-01T00:00:00+00:00",
        code_digest="c1",
    )


def as_text(row, **changes):
    """A line of JSON, with fields changed to whatever they should not be."""
    return (json.dumps({**msgspec.to_builtins(row), **changes}) + "\n").encode()


def test_rows_come_back_as_they_were_written(tmp_path):
    with open_for_appending(tmp_path) as results:
        results.append(row(1))
        results.append(row(2))
        assert results.accuracies(RUN) == {1: 0.5, 2: 0.5}
    assert read_rows(tmp_path) == [row(1), row(2)]


def test_a_torn_line_is_dropped_at_every_length(tmp_path):
    with open_for_appending(tmp_path) as results:
        results.append(row(1))
        results.append(row(2))
    whole = (tmp_path / FILE_NAME).read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole) - 1):
        (tmp_path / FILE_NAME).write_bytes(whole[:length])
        assert read_rows(tmp_path) == [row(1)]
        with open_for_appending(tmp_path) as results:
            assert set(results.accuracies(RUN)) == {1}
            results.append(row(2))
        assert (tmp_path / FILE_NAME).read_bytes() == whole


@pytest.mark.parametrize("kept", [0, 30, None])
def test_zeros_that_a_power_cut_has_left_are_dropped(tmp_path, kept):
    with open_for_appending(tmp_path) as results:
        results.append(row(1))
        results.append(row(2))
    first, last, _ = (tmp_path / FILE_NAME).read_bytes().split(b"\n")
    (tmp_path / FILE_NAME).write_bytes(first + b"\n" + last[:kept] + bytes(500))
    rows = [row(1), row(2)][: 1 + (kept is None)]  # all but its line end, or a part of it
    assert read_rows(tmp_path) == rows
    with open_for_appending(tmp_path) as results:
        assert len(results.accuracies(RUN)) == len(rows)
        results.append(row(2))
    assert read_rows(tmp_path) == [*rows, row(2)]


def test_a_row_that_lacks_its_line_end_alone_is_kept(tmp_path):
    with open_for_appending(tmp_path) as results:
        results.append(row(1))
        results.append(row(2))
    path = tmp_path / FILE_NAME
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert read_rows(tmp_path) == [row(1), row(2)]
    with open_for_appending(tmp_path) as results:
        assert set(results.accuracies(RUN)) == {1, 2}
    assert path.read_bytes() == whole


def test_what_is_no_beginning_of_a_row_is_not_dropped(tmp_path):
    path = tmp_path / FILE_NAME
    plain = (b'{"my":"precious', b'{"my":1}', b"1,2,3", b'{"run":{"dataset":1}}')
    damaged = (b'{"run":{"dataset":"\xbb"', b'{"run":{"dataset":' + 100_000 * b"[")
    for content in (*plain, *damaged):
        path.write_bytes(content)
        with refused("row-invalid") as refusal, open_for_appending(tmp_path):
            pass
        assert "Line 1 of" in str(refusal.value)
        assert path.read_bytes() == content


def test_rows_of_another_revision_are_known_as_such(tmp_path):
    newer = replace(RUN, revision=2)
    with open_for_appending(tmp_path) as results:
        assert not results.is_outdated(RUN)
        results.append(row(1))
        assert not results.is_outdated(RUN)
        assert results.is_outdated(newer)
        assert not results.is_outdated(replace(newer, seed=1))


def test_rows_of_format_1_are_revision_1_with_their_digest_as_information():
    said = msgspec.to_builtins(row())
    del said["code_digest"], said["run"]["revision"]
    said["run"]["code_digest"] = "c1"
    assert parse(json.dumps({**said, "format": 1}).encode()) == row()
    for wrong in ({"format": 1, "run": []}, {"format": 3}, {"format": 2}, {"format": None}):
        with pytest.raises(ValueError):  # noqa: PT011 - msgspec's words are its own
            parse(json.dumps({**said, **wrong}).encode())
    del said["run"]["code_digest"]
    with pytest.raises(ValueError, match="code_digest"):
        parse(json.dumps({**said, "format": 1}).encode())


def test_the_committed_rows_are_found_again():
    """What a plan would ask for: the declared revision, and options as they are compared."""
    rows = read_rows(RESULTS)
    results = Results(RESULTS / FILE_NAME, rows)
    assert len(rows) >= 1435
    for each in rows:
        entry = METHODS[each.run.method]
        wanted = replace(each.run, revision=entry.revision, options=entry.changed(each.run.options))
        if entry.revision == each.run.revision:
            assert len(results.accuracies(wanted)) == each.n_sessions
        else:
            assert results.is_outdated(wanted)


def test_a_damaged_line_is_named(tmp_path):
    with open_for_appending(tmp_path) as results:
        results.append(row(1))
    path = tmp_path / FILE_NAME
    wrong = [
        ("accuracy", float("nan")),
        ("accuracy", float("inf")),
        ("accuracy", 1.5),
        ("accuracy", True),
        ("group_accuracy", [0.5, -0.1]),
        ("n_shared", False),
        ("more", 1),
        ("format", 3),
        ("environment", None),
        ("environment", {"cores": "two"}),
        ("environment", {"threads": 0}),
        ("seconds", {}),
        ("seconds", {"learn": "x", "predict": 1.0}),
        ("session", "2"),
        ("accuracy", "0.5"),
        ("n_shared", 1.5),
        ("class_counts", 3),
        ("class_counts", [2, True, 2, 2]),
        ("n_test", 0),
        ("n_sessions", 1),
        ("session_sizes", [4]),
        ("group_accuracy", []),
        ("confusions", [[0, 1]]),
        ("run", {**msgspec.to_builtins(RUN), "options": []}),
        ("run", {**msgspec.to_builtins(RUN), "code_digest": "c1"}),
    ]
    for damage in (
        *(as_text(row(2), **{name: value}) for name, value in wrong),
        as_text(row(2)).replace(b'"accuracy": 0.5', b'"accuracy": 1e400'),
        b"[" * 100_000 + b"\n",
        b"{}\n",
        b"nonsense\n",
        b"\xff\xfe\n",
        b'{"run": {"x": 1}, "confusions": []}\n',
    ):
        path.write_bytes(path.read_bytes().split(b"\n")[0] + b"\n" + damage)
        with refused("row-invalid", InputError) as refusal:
            read_rows(tmp_path)
        assert "Line 2 of" in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"accuracy": 1.5}, "accuracy"),
        ({"class_counts": [2, True, 2, 2]}, "class_counts"),
        ({"more": 1}, "more"),
        ({"seconds": {}}, "seconds"),
        ({"session_sizes": [4]}, "sessions and classes"),
    ],
)
def test_what_is_wrong_with_a_row_is_named(changes, named):
    with pytest.raises(ValueError, match=named):
        parse(as_text(row(2), **changes))


def test_a_folder_that_nothing_came_of_is_not_left(tmp_path):
    with pytest.raises(KeyError), open_for_appending(tmp_path / "new"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").mkdir()
    with open_for_appending(tmp_path / "old"):
        pass
    assert (tmp_path / "old").exists()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"mine")
    with refused("results-unwritable", InputError), open_for_appending(tmp_path / "file"):
        pass
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_a_folder_without_results_is_refused(tmp_path):
    with refused("results-missing", InputError) as refusal:
        read_rows(tmp_path / "none")
    assert "visvm bench" in str(refusal.value)


def test_two_programs_do_not_write_at_once(tmp_path):
    with (
        open_for_appending(tmp_path),
        refused("results-in-use"),
        open_for_appending(tmp_path),
    ):
        pass


def test_what_decides_the_numbers_decides_the_key():
    keys = {RUN.key}
    changes = {
        "data_digest": "d2",
        "weights_digest": "w2",
        "transform": "crop",
        "transform_key": "t2",
        "revision": 2,
        "protocol": "B0 Inc10",
        "class_order_seed": 1994,
        "method": "ncm",
        "seed": 1,
        "options": {},
        "split": "validation",
    }
    for name, value in changes.items():
        keys.add(replace(RUN, **{name: value}).key)
    assert len(keys) == 1 + len(changes)
    assert replace(RUN, dataset="/elsewhere/cub", encoder="/elsewhere/weights").key == RUN.key


def test_numbers_that_json_has_not_are_refused(tmp_path):
    with open_for_appending(tmp_path) as results, refused("costs-unwritable", InputError):
        results.append(replace(row(), accuracy=float("nan")))
    assert (tmp_path / FILE_NAME).read_bytes() == b""
