import json
import math
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scale
import scale_model
import scale_tables
from scale_model import Job, Node, Rates, Stream
from scale_simulation import Part, add_in_tree, careless_bytes, simulate

from visvm.head.scatter import DenseScatter, ThinScatter
from visvm.head.solver import solve
from visvm.head.statistics import Statistics

pytestmark = pytest.mark.slow

FREE = Rates(*[math.inf] * 7)
BLOCKS = 64
STREAM = Stream("a stream", BLOCKS * scale_model.BLOCK, 1000, shuffled=True)
CPU = Node("CPU", cores=2, memory=1e9, images_per_second=10.0, gpu=False)
JOB = Job(STREAM, CPU, FREE, link=1e9, width=1000)


def make_sums(width, batches, *, classes, dense, seed=0):
    generator = np.random.default_rng(seed)
    sums = Statistics(width)
    if dense:
        sums.reserve(width)
    for n in batches:
        sums.add(generator.normal(size=(n, width)), generator.permutation(np.resize(classes, n)))
    return sums


def traced_peak(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# Against the real thing


@pytest.mark.parametrize("batches", [(90,), (50, 40), (80, 9, 1)])
def test_bytes_of_a_thin_sum(batches):
    sums = make_sums(300, batches, classes=np.arange(9), dense=False)
    assert isinstance(sums.scatter, ThinScatter)
    arrays = [*sums.scatter.blocks, sums.scatter.targets, sums.class_sums]
    assert sum(array.nbytes for array in arrays) == scale_model.thin_bytes(sum(batches), 300, 9)


@pytest.mark.parametrize("batches", [(500,), (50, 40)])
def test_bytes_of_a_dense_sum(batches):
    sums = make_sums(60, batches, classes=np.arange(9), dense=True)
    assert isinstance(sums.scatter, DenseScatter)
    tables = sums.scatter.cross.nbytes + sums.class_sums.nbytes
    assert sums.scatter.matrix.nbytes + tables == scale_model.dense_bytes(60, 9)
    triangle = sums.scatter.matrix[np.tril_indices(60)]
    assert triangle.nbytes + tables == scale_model.dense_bytes(60, 9, sent=True)


def test_peak_of_a_merge():
    width, n_classes = 300, 700
    mine = make_sums(width, [1400], classes=np.arange(n_classes), dense=True)
    theirs = make_sums(width, [300], classes=np.arange(0, n_classes, 4), dense=True)
    held = scale_model.dense_bytes(width, n_classes) + scale_model.dense_bytes(width, 175)
    peak = held + traced_peak(lambda: mine.merge(theirs))
    assert peak == pytest.approx(scale_model.merge_peak_bytes(width, n_classes, 175), rel=0.1)


def test_solving_stays_below_its_peak():
    width, n_classes = 300, 700
    sums = make_sums(width, [1400], classes=np.arange(n_classes), dense=True)
    coefficients = 8 * (width + 1) * n_classes
    peak = (
        scale_model.dense_bytes(width, n_classes)
        + coefficients
        + traced_peak(lambda: solve(sums, 1.0, 10.0))
    )
    assert (
        0.6 * scale_model.solve_peak_bytes(width, n_classes)
        < peak
        < scale_model.solve_peak_bytes(width, n_classes)
    )


def test_blocks_turn_dense_at_a_group(monkeypatch):
    monkeypatch.setattr(scale_model, "BLOCK", 8)
    group = replace(JOB, width=30).group
    sums = {8: make_sums(30, [8], classes=np.arange(2), dense=False)}
    while isinstance(sums[max(sums)].scatter, ThinScatter):
        size = max(sums)
        sums[2 * size] = sums[size].copy()
        sums[2 * size].merge(sums[size])
    assert group == max(sums) == 32


@pytest.mark.parametrize("shuffled", [True, False])
def test_classes_in_a_piece(shuffled):
    stream = Stream("", 20_000, 400, shuffled=shuffled)
    labels = np.repeat(np.arange(400), 50)
    if shuffled:
        labels = np.random.default_rng(0).permutation(labels)
    counted = np.mean(
        [len(np.unique(labels[begin : begin + 500])) for begin in range(0, 20_000, 500)]
    )
    assert stream.classes_in(500) == pytest.approx(counted, rel=0.1)
    assert stream.classes_in(20_000) == 400


# Known answers


def test_one_node_is_the_encoder_alone():
    run = simulate(JOB, 1)
    assert run.learned == run.added == pytest.approx(STREAM.n_images / 10.0)
    assert run.sent == run.redone == 0


@pytest.mark.parametrize("n_nodes", [2, 4, 8, 64])
def test_more_nodes_share_the_encoding(n_nodes):
    run = simulate(JOB, n_nodes)
    assert run.learned == pytest.approx(STREAM.n_images / 10.0 / n_nodes)
    assert sum(part.n_images for part in run.parts) == STREAM.n_images


def test_a_last_block_may_be_smaller():
    stream = replace(STREAM, n_images=scale_model.BLOCK + 10)
    assert [part.n_images for part in simulate(replace(JOB, stream=stream), 2).parts] == [
        scale_model.BLOCK,
        10,
    ]


def test_cores_do_both_where_there_is_no_gpu():
    rates = replace(FREE, decode=5.0)  # 0.2 s of a core, 0.1 s of two
    cpu, gpu = (replace(JOB, rates=rates, node=replace(CPU, gpu=gpu)) for gpu in (False, True))
    assert simulate(cpu, 1).learned == pytest.approx(STREAM.n_images * 0.2)
    assert simulate(gpu, 1).learned == pytest.approx((STREAM.n_images + scale_model.BLOCK) * 0.1)


def test_the_link_bounds_the_encoder():
    assert replace(JOB, link=scale_model.FILE).encode_seconds() == 1.0


def test_operations_of_an_image():
    job = replace(JOB, rates=replace(FREE, lift=2.0, scatter=10.0, product=4.0), n_inputs=384)
    parts = job.core_seconds(1)
    assert parts["lift"] == 384 * 1000
    assert parts["D x D sum"] == 1000**2 / 10
    # 8388 rows: 64 MiB
    assert (
        parts["class columns"] == 2 * 1000 * (STREAM.classes_in(4096) + STREAM.classes_in(8388)) / 4
    )
    assert job.sum_seconds(1) == sum(parts.values()) / 2


def test_groups_are_added_one_after_the_other():
    job = replace(JOB, rates=replace(FREE, merge=8.0), node=replace(CPU, cores=64))
    assert job.merge_seconds(3) == 1000**2 + 2001 * 3
    assert job.sum_seconds(1) == job.merge_seconds(1000) / job.group


def test_solving():
    job = replace(JOB, rates=replace(FREE, cholesky=1e6, triangular=1e6))
    assert job.solve_seconds(8) == pytest.approx((1000 / 3 + 2 * 1001) / 2)
    sharded = replace(job, sharded=True, link=1e6)
    assert sharded.solve_seconds(8) == pytest.approx(
        (1000 / 3 + 2 * 126) / 2 + 8 * 1000 * 1001 / 2 / 1e6
    )
    assert job.cholesky_seconds(1) == pytest.approx(1000 / 6)
    assert replace(job, link=1e6).cholesky_seconds(4) == pytest.approx(1000 / 24 + 8 / 2)


@pytest.mark.parametrize(("n_nodes", "depth"), [(1, 0), (2, 1), (3, 2), (8, 3), (9, 4), (64, 6)])
def test_depth_of_the_tree(n_nodes, depth):
    levels = add_in_tree(JOB, [Part(float(place), 10, 1) for place in range(n_nodes)])
    assert len(levels) - 1 == depth
    assert levels[-1][0].n_images == 10 * n_nodes


def test_a_level_waits_for_both_sums_and_the_link():
    stream = replace(STREAM, n_classes=1, shuffled=False)
    # a sum takes a second
    job = replace(JOB, stream=stream, link=float(scale_model.dense_bytes(1000, 1, sent=True)))
    levels = add_in_tree(job, [Part(ready, 5, 1) for ready in (0.0, 5.0, 1.0, 2.0)])
    assert [[part.ready for part in level] for level in levels] == [
        [0.0, 5.0, 1.0, 2.0],
        [6.0, 3.0],
        [7.0],
    ]
    assert simulate(job, 4).sent == 3 * scale_model.dense_bytes(1000, 1, sent=True)


def test_a_tree_that_ignores_the_nodes():
    stream = replace(STREAM, n_images=4 * scale_model.BLOCK)
    job = replace(JOB, stream=stream)
    dense = [
        scale_model.dense_bytes(1000, stream.classes_in(n * scale_model.BLOCK), sent=True)
        for n in (1, 2)
    ]
    assert careless_bytes(job, 2) == (2 * dense[0] + dense[1]) / 2
    thin = replace(job, width=100_000)
    assert careless_bytes(thin, 2) == sum(
        2
        / n
        / 2
        * scale_model.thin_bytes(
            n * scale_model.BLOCK, 100_000, stream.classes_in(n * scale_model.BLOCK)
        )
        for n in (1, 2)
    )


# Trouble


def test_a_failure_is_learned_again():
    whole = simulate(JOB, 1).learned
    run = simulate(JOB, 1, failure=whole / 2 + 1.0)
    block = scale_model.BLOCK / 10.0
    assert run.redone == (BLOCKS / 2 + 1) * scale_model.BLOCK  # with the block in the making
    assert run.learned == pytest.approx(whole * 1.5 + 1.0 + scale_model.REPAIR)
    saved = simulate(JOB, 1, failure=whole / 2 + 1.0, saved_every=10 * block + 1e-6)
    # 30 of 32 blocks were saved, and one was in the making
    assert saved.redone == 3 * scale_model.BLOCK


def test_nodes_that_had_finished_help():
    stream = replace(STREAM, n_images=4 * scale_model.BLOCK)
    job, block = replace(JOB, stream=stream), scale_model.BLOCK / 10.0
    late = replace(job, rates=replace(FREE, decode=1e9))
    run = simulate(late, 4, failure=block * 0.99)
    assert run.parts[0].n_images == 0
    assert run.learned == pytest.approx(2 * block, rel=1e-3)
    assert sum(part.n_images for part in run.parts) == stream.n_images


def test_a_slow_node_costs_what_it_lacks():
    stream = replace(STREAM, n_images=3000 * scale_model.BLOCK)
    job = replace(JOB, stream=stream)
    run = simulate(job, 8, slow_nodes=1)
    assert run.learned == pytest.approx(simulate(job, 8).learned * 8 / 7.5, rel=0.01)
    assert run.parts[-1].n_images < 0.55 * run.parts[0].n_images


def test_spread_has_mean_one_and_a_seed():
    runs = [
        simulate(
            replace(JOB, stream=replace(STREAM, n_images=10**7)), 1, spread=0.3, seed=seed
        ).learned
        for seed in (0, 0, 1)
    ]
    assert runs[0] == runs[1] != runs[2]
    assert runs[0] == pytest.approx(1e6, rel=0.03)


def test_shards_need_less():
    job, sharded = JOB, replace(JOB, sharded=True)
    assert sharded.node_peak_bytes(8) < job.node_peak_bytes(8)
    assert sharded.driver_peak_bytes(8) < job.driver_peak_bytes(8)
    features = STREAM.n_images * 4 * 384 * 7 // 8
    assert simulate(sharded, 8).sent == 7 * scale_model.dense_bytes(1000, 0, sent=True) + features


# The page


@pytest.fixture
def small_streams(monkeypatch):
    for module in (scale_tables, scale_model):
        for name in ("FOLDERS", "MIXED", "WEB"):
            stream = getattr(scale_model, name)
            if stream.n_images > 10**7:
                monkeypatch.setattr(module, name, replace(stream, n_images=stream.n_images // 100))
            else:
                monkeypatch.setattr(module, name, stream)


def kept():
    return json.loads((scale.DOCS / "scale.json").read_text())


def values(*options):
    given = scale.parser().parse_args(options)
    return scale.values_of(scale.setup_of(given, Rates(**kept()["rates"])), given, kept())


def test_the_page_is_what_the_command_writes():
    page = (scale.DOCS / "scale.md").read_text()
    assert scale.fill(page, values()) == page


@pytest.mark.usefixtures("small_streams")
@pytest.mark.parametrize(
    ("option", "table"),
    [
        (("--nodes", "1", "4"), "learning-cpu"),
        (("--cores", "4"), "learning-cpu"),
        (("--memory", "10"), "limits"),
        (("--gpu-rate", "500"), "learning-gpu"),
        (("--gpu-cores", "4"), "learning-gpu"),
        (("--gpu-memory", "64"), "limits"),
        (("--link", "1"), "learning-cpu"),
        (("--encoder-ms", "40"), "learning-cpu"),
        (("--clip-ms", "400"), "clip"),
    ],
)
def test_every_option_counts(option, table):
    assert values(*option)[table] != values()[table]


@pytest.mark.usefixtures("small_streams")
def test_another_cluster_is_printed_and_not_written(monkeypatch, capsys, tmp_path):
    (tmp_path / "scale.json").write_text(json.dumps(kept()))
    monkeypatch.setattr(scale, "DOCS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["scale.py", "--nodes", "1", "2"])
    scale.main()
    assert "learning-cpu:" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["scale.json"]


def test_a_page_that_lacks_a_mark_is_refused():
    with pytest.raises(SystemExit, match="b"):
        scale.fill("<!-- a -->1<!-- / -->", {"a": "2", "b": "3"})
    assert scale.fill("x <!-- a -->1<!-- / --> y", {"a": "2"}) == "x <!-- a -->2<!-- / --> y"
