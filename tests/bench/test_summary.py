import inspect

import pytest
from msgspec.structs import replace

from tests.bench.make_rows import make_rows, make_run
from visvm import VisClassifier
from visvm.bench.report.grouping import SENSITIVE, elsewhere, lines, repeated, sensitivity, settings
from visvm.bench.report.plots import Line, gap
from visvm.bench.report.summary import (
    RELATIVES,
    collect,
    environments,
    grouped,
    in_order,
    marks,
    spread,
)


def finished(*streams):
    """Finished runs from (method or run, accuracies)."""
    rows = [
        row
        for run, accuracies in streams
        for row in make_rows(make_run(run) if isinstance(run, str) else run, accuracies)
    ]
    runs, unfinished = collect(rows)
    assert not unfinished
    return runs


def test_numbers_of_a_run():
    groups = [[0.9], [0.8, 0.7], [0.7, 0.65, 0.6]]
    (run,), _ = collect(make_rows(make_run(), [0.9, 0.8, 0.4], groups))
    assert run.average == pytest.approx(0.7)
    assert run.final == 0.4
    assert run.forgetting == pytest.approx((0.2 + 0.05) / 2)
    assert run.seen == [2, 4, 6]
    assert run.class_names == [f"class {number}" for number in range(6)]
    assert run.learn_seconds == pytest.approx(1.5)
    assert run.predict_seconds_per_image == pytest.approx(0.12 / 120)
    assert run.encode_seconds_per_image is None
    assert run.peak_memory == 2 * 10**8
    assert run.n_images == 180 + 60


def test_single_session_forgets_nothing():
    (run,) = finished(("vis", [0.5]))
    assert run.forgetting is None


def test_memory_that_some_rows_do_not_tell():
    rows = make_rows(make_run(), [0.9, 0.8], peak_memory=None)
    assert collect(rows)[0][0].peak_memory is None
    assert collect([rows[0], replace(rows[1], peak_memory=5)])[0][0].peak_memory == 5


@pytest.mark.parametrize("there", [[0, 1], [0, 2], [1, 2]])
def test_unfinished_run_is_set_aside(there):
    rows = make_rows(make_run(), [0.9, 0.8, 0.7])
    runs, (unfinished,) = collect([rows[place] for place in there])
    assert runs == []
    assert (unfinished.sessions, unfinished.n_sessions) == (tuple(place + 1 for place in there), 3)


def test_rows_in_any_order_and_twice():
    rows = make_rows(make_run(), [0.9, 0.8])
    (run,), _ = collect([rows[1], rows[0], replace(rows[0], accuracy=0.1)])
    assert run.accuracies == [0.1, 0.8]


@pytest.mark.parametrize(("ours", "theirs", "expected"), [(0.8, 0.7, 0.1), (0.7, 0.8, -0.1)])
def test_gap_has_a_sign_and_leaves_the_oracle_and_relatives_out(ours, theirs, expected):
    ends = {"vis": ours, "mine": theirs, "ridge": 0.95, "ncm": 0.5, "vis-oracle": 0.99}
    drawn = [Line(method, method, [2, 4], [1.0, end]) for method, end in ends.items()]
    found = gap(drawn)
    assert found.points == pytest.approx(expected)
    assert (found.ours, found.other) == ("vis", "mine")
    found = gap(drawn, RELATIVES.__contains__)
    assert found.points == pytest.approx(ours - 0.95)
    assert found.other == "ridge"


@pytest.mark.parametrize(
    "methods", [["vis"], ["vis", "vis-oracle"], ["vis", "vis-paper"], ["ncm", "mine"]]
)
def test_no_gap_without_two_sides(methods):
    assert gap([Line(method, method, [2, 4], [0.5, 0.4]) for method in methods]) is None


def test_marks():
    texts = ["70.00", "70.00", "60.00", "–", "50.00"]
    assert marks([0.7, 0.70001, 0.6, None, 0.5], texts) == ["best", "best", "second", "", ""]
    assert marks([0.7, 0.70001, 0.6, None, 0.5], texts, lowest=True) == [
        "",
        "",
        "second",
        "",
        "best",
    ]
    assert marks([0.7], ["70.00"]) == [""]
    assert marks([0.7, 0.7], ["70.00", "70.00"]) == ["", ""]
    assert marks([], []) == []


def test_spread():
    over = spread([[1.0, 2.0], [3.0, 2.0], [5.0, 2.0]])
    assert over.mean.tolist() == [3.0, 2.0]
    assert over.std.tolist() == [2.0, 0.0]
    assert spread([4.0]).std == 0


def test_order_of_methods():
    runs = finished(
        *(
            (method, [0.5])
            for method in ("vis-oracle", "vis", "my b", "ridge", "my a", "zs-clip", "my 10", "my 9")
        )
    )
    assert [each.label for each in in_order(runs)] == [
        "zs-clip",
        "ridge",
        "my 9",
        "my 10",
        "my a",
        "my b",
        "vis",
        "vis-oracle",
    ]


def test_settings_are_what_may_be_compared():
    same = make_run("vis", encoder="/elsewhere/dinov2-s14")
    others = [
        make_run("vis", protocol="B4 Inc2"),
        make_run("vis", protocol="B10 Inc2"),
        make_run("vis", transform="crop"),
        make_run("vis", weights_digest="f" * 64),
        make_run("vis", dataset="/data/cub200", data_digest="e" * 64),
        make_run("vis", dataset="aircraft", data_digest="a" * 64),
    ]
    found = settings(
        finished((make_run("ncm"), [0.5]), *((run, [0.5]) for run in [same, *others])),
        ["cub200", "aircraft"],
    )
    assert [(each.stream, each.encoder, len(each.runs)) for each in found] == [
        ("cub200, 80 images, dddddddd B0 Inc2", "dinov2-s14, crop", 1),
        ("cub200, 80 images, dddddddd B0 Inc2", "dinov2-s14, squash, 0cd026c8", 2),
        ("cub200, 80 images, dddddddd B4 Inc2", "dinov2-s14, squash, 0cd026c8", 1),
        ("cub200, 80 images, dddddddd B10 Inc2", "dinov2-s14, squash, 0cd026c8", 1),
        ("aircraft B0 Inc2", "dinov2-s14, squash, 0cd026c8", 1),
        ("cub200, 80 images, eeeeeeee B0 Inc2", "dinov2-s14, squash, 0cd026c8", 1),
        ("cub200, 80 images, dddddddd B0 Inc2", "dinov2-s14, squash, ffffffff", 1),
    ]


def test_labels_are_plain_where_nothing_else_has_the_name():
    (setting,) = settings(
        finished((make_run("vis", dataset="photos/birds/", encoder="a\\b.onnx"), [0.5]))
    )
    assert setting.label == "birds B0 Inc2, b.onnx"


def test_main_comparison_takes_default_options_or_the_only_ones():
    runs = [
        make_run("vis"),
        make_run("vis", options={"n_components": 500}),
        make_run("klda", options={"n_components": 500}),
        make_run("acil", options={"n_components": 500}),
        make_run("acil", options={"n_components": 600}),
        make_run("ncm", seed=1),
        make_run("slda", class_order_seed=1994),
        make_run("ridge", split="validation"),
    ]
    (setting,) = settings(finished(*((run, [0.5]) for run in runs)))
    assert list(setting.standard) == [
        "klda (n_components=500)",
        "acil (n_components=500)",
        "acil (n_components=600)",
        "vis",
    ]
    labels = [
        (each.label, each.run.seed, each.run.class_order_seed, each.run.split)
        for each in elsewhere(setting)
    ]
    assert labels == [
        ("vis (n_components=500)", 0, 1993, "test"),
        ("ncm", 1, 1993, "test"),
        ("slda", 0, 1994, "test"),
        ("ridge", 0, 1993, "validation"),
    ]


def test_focus_is_ours_or_the_best():
    (setting,) = settings(finished(("vis", [0.5]), ("mine", [0.6]), ("vis-oracle", [0.9])))
    assert setting.focus.label == "vis"
    (setting,) = settings(finished(("ncm", [0.5]), ("mine", [0.6]), ("vis-oracle", [0.9])))
    assert setting.focus.label == "mine"
    (setting,) = settings(finished(("vis-oracle", [0.9])))
    assert setting.focus is None


def test_repeated_runs():
    runs = [
        make_run("vis"),
        make_run("vis", seed=1),
        make_run("vis", class_order_seed=1994),
        make_run("vis", class_order_seed=1994, seed=1),
        make_run("ncm"),
        make_run("ncm", class_order_seed=1995),
        make_run("ncm", class_order_seed=1996, split="validation"),
    ]
    (setting,) = settings(finished(*((run, [0.5]) for run in runs)))
    orders = {
        label: [each.run.class_order_seed for each in group]
        for label, group in repeated(setting, "class_order_seed").items()
    }
    assert orders == {"ncm": [1993, 1995], "vis": [1993, 1994]}
    assert {
        label: [each.run.seed for each in group]
        for label, group in repeated(setting, "seed").items()
    } == {"vis": [0, 1]}


def test_sensitivity_has_the_default_in_both_lines():
    wanted = [{}, {"identity_weight": 0.1}, {"n_components": 3000}]
    lone = {"identity_weight": 0.5, "n_components": 9}
    other = {"n_components": None}
    runs = [
        make_run("vis", split="validation", options=options) for options in [*wanted, lone, other]
    ]
    (setting,) = settings(finished(*((run, [0.5]) for run in runs)))
    ((label, group),) = sensitivity(setting).items()
    assert label == "vis"
    assert [each.run.options for each in group] == wanted
    assert {
        value: [each.run.options for each in line]
        for value, line in lines(group, "n_components").items()
    } == {0.01: [{}, {"n_components": 3000}]}
    assert [each.run.options for each in elsewhere(setting)] == [lone, other]


def test_defaults_of_the_options_studied():
    parameters = inspect.signature(VisClassifier).parameters
    assert {name: parameters[name].default for name in SENSITIVE} == SENSITIVE


def test_environments():
    rows = make_rows(make_run(), [0.9, 0.8])
    changed = replace(
        rows[1], environment={**rows[1].environment, "cpu": "another", "blas": ["a", "b"]}
    )
    told = environments([rows[0], changed])
    assert told["cpu"] == ["a CPU", "another"]
    assert told["blas"] == ["openblas 0.3.27", "a, b"]
    assert told["threads"] == ["2"]
    silent = replace(
        rows[0],
        environment={
            name: value for name, value in rows[0].environment.items() if name != "threads"
        },
    )
    assert environments([silent, changed])["threads"] == ["not recorded", "2"]


def test_the_digest_of_the_head_is_no_part_of_the_environment():
    first, second = make_rows(make_run(), [0.9, 0.8])
    told = replace(first, environment={**first.environment, "head": "h"})
    assert environments([told, second]) == environments([first, second])


def test_grouped_keeps_the_order():
    assert grouped([3, 1, 4, 1, 5], lambda number: number % 2) == {1: [3, 1, 1, 5], 0: [4]}


def test_revisions_are_not_mixed_over_seeds():
    old = [make_rows(make_run("vis", seed=seed), [0.5]) for seed in (0, 1)]
    new = make_rows(make_run("vis", revision=2), [0.9])
    other = make_rows(make_run("ncm"), [0.4])
    finished, _ = collect([*old[0], *old[1], *new, *other])
    assert [(each.run.method, each.final) for each in finished] == [("vis", 0.9), ("ncm", 0.4)]


def test_of_two_revisions_the_newer_counts():
    old = make_rows(make_run("vis"), [0.5, 0.5])
    new = make_rows(make_run("vis", revision=2), [0.9, 0.8])
    for rows in (old + new, new + old):
        (run,), unfinished = collect(rows)
        assert (run.accuracies, unfinished) == ([0.9, 0.8], [])
    # what is not finished is not made up for by older numbers
    finished, (run,) = collect(old + new[:1])
    assert (finished, run.sessions) == ([], (1,))


def test_rows_of_other_code_but_one_revision_belong_together():
    first, second = make_rows(make_run("vis"), [0.5, 0.6])
    (run,), unfinished = collect([first, replace(second, code_digest="reworded")])
    assert (run.accuracies, unfinished) == ([0.5, 0.6], [])
