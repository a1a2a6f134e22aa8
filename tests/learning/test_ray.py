"""Learning on Ray: the model of one process, whatever the workers, blocks, order and kills."""

import os
import signal
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests import tiny
from tests.cli.test_main import refused as refused_line
from tests.learning.on_workers import Probe, Slow
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.encoders.pipeline import ReadImage
from visvm.encoders.transform import Transform
from visvm.errors import EncoderError, ImageError, InputError, MemoryLimitError, VisvmError
from visvm.head.scatter import DenseScatter, ThinScatter
from visvm.head.settle import HeadOptions
from visvm.learning.labelled import Labelled
from visvm.learning.ray import RayEngine
from visvm.learning.ray_tasks import Part, Plan, _add, _objects, _settle, _sum
from visvm.learning.work import Work, stratified

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings(r"ignore::Warning:ray\.")]

FORMS = {"thin": (400, ThinScatter), "dense": (20, DenseScatter)}


@pytest.fixture(scope="module")
def cluster():
    """A local Ray with two encoders' worth of cores and as many for the rest.

    Every process of it takes seconds to start, so there are few.
    """
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - Ray's own spelling
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    )
    ray.init(
        "local",
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        # Ray ends processes that were idle for a second; starting others takes longer than a test
        _system_config={
            "idle_worker_killing_time_threshold_ms": 600_000,
            "num_workers_soft_limit": 12,
        },
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "base", n=30)
    tiny.write_photos(folder / "later", classes=("yellow", "red"), n=20, seed=1)
    tiny.write_photos(folder / "test", classes=tuple(tiny.COLOURS), n=4, seed=3)
    return folder


def make(place, width=60, **options):
    return ImageClassifier(str(place / "tiny.onnx"), width, **{"cache": False, **options})


def scores(model, place):
    got = model.predict(sorted((place / "test").rglob("*.png")), raw=True, top=99)
    return np.array([[dict(each.top)[label] for label in model.classes_] for each in got])


def assert_same(model, other, place):
    assert (model.classes_, model.class_counts_) == (other.classes_, other.class_counts_)
    assert (model.head_.ridge_, model.head_.layers_) == (other.head_.ridge_, other.head_.layers_)
    np.testing.assert_allclose(scores(model, place), scores(other, place), atol=1e-5, rtol=0)
    np.testing.assert_allclose(
        model.model_.calibration.likelihoods, other.model_.calibration.likelihoods, rtol=1e-5
    )


@pytest.mark.parametrize(
    ("form", "actors", "images_per_sum", "most_base", "shuffled"),
    [("thin", 2, 16, 40, False), ("dense", 1, 7, None, True)],
)
def test_the_model_is_that_of_one_process(
    cluster, place, form, actors, images_per_sum, most_base, shuffled
):
    width, kind = FORMS[form]
    views = "mirror" if form == "thin" else "one"
    here, there = (make(place, width, max_base_images=most_base, views=views) for _ in range(2))
    engine = RayEngine(actors=actors, batch_size=3, images_per_sum=images_per_sum)
    for folder in ("base", "later"):
        paths = sorted((place / folder).rglob("*.png"))
        if shuffled:
            paths = [paths[index] for index in np.random.default_rng(0).permutation(len(paths))]
        labels = [path.parent.name for path in paths]
        one, many = here.learn(paths, labels), there.learn(paths, labels, engine=engine)
        assert (one.n_images, one.settled_on) == (many.n_images, many.settled_on)
        assert one.ridge_choice == many.ridge_choice
    # λ was settled on a sample; a later session has chosen it anew
    assert (one.ridge_choice is not None) == (form == "thin")
    assert isinstance(there.head_.statistics_.scatter, kind)
    assert_same(there, here, place)


def processes(name):
    """Ids of the processes of this test's Ray that are called so; another may run beside it."""
    titles, parents = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                title = (folder / "cmdline").read_bytes().decode(errors="replace")
                status = (folder / "stat").read_text(errors="replace")
            except OSError:
                continue
            titles[int(folder.name)] = title
            parents[int(folder.name)] = int(status.rpartition(")")[2].split()[1])

    def is_ours(process):
        while process in parents and process != os.getpid():
            process = parents[process]
        return process == os.getpid()

    return [
        process
        for process, title in titles.items()
        if title.startswith("ray::") and name in title and is_ours(process)
    ]


@pytest.mark.kill
def test_killed_workers_lose_nothing_and_count_nothing_twice(cluster, place, tmp_path):
    here, there = (make(place, ridge=1.0, layers=(1, 3)) for _ in range(2))
    for model in (here, there):
        model.learn(place / "base")
    paths = sorted((place / "later").rglob("*.png")) * 5
    labels = [path.parent.name for path in paths]
    here.learn(paths, labels)
    deadly = tmp_path / "a reader was killed"
    sources = [
        Slow(str(path), str(deadly) if number == 60 else "") for number, path in enumerate(paths)
    ]
    killed = []

    def kill_an_encoder(stage, done, total):
        if stage == "encoding" and 0 < done < total and not killed:
            for process in processes("_Encode")[:1]:
                os.kill(process, signal.SIGKILL)
                killed.append(process)

    report = there.learn(
        sources, labels, engine=RayEngine(actors=2, images_per_sum=30), progress=kill_an_encoder
    )
    assert deadly.exists()
    assert killed
    assert report.n_images == len(paths)
    assert_same(there, here, place)


def test_unreadable_images_are_left_out_or_refused(cluster, place, tmp_path):
    folder = tiny.write_photos(tmp_path / "photos", n=12, seed=7)
    paths = sorted(folder.rglob("*.png"))
    labels = [path.parent.name for path in paths]
    here, there = (make(place, max_base_images=15, random_state=0) for _ in range(2))
    sample = stratified(labels, 15, seed=0)
    settling, later = paths[sample[3]], paths[next(n for n in range(36) if n not in sample)]
    settling.write_text("no picture")
    later.unlink()
    engine = RayEngine(actors=1, images_per_sum=8)
    with refused("images-unreadable", ImageError) as caught:
        there.learn(paths, labels, engine=engine)
    assert all(str(path) in str(caught.value) for path in (settling, later))
    assert there.classes_ == ()
    here.learn(paths, labels, skip_unreadable=True)
    report = there.learn(paths, labels, skip_unreadable=True, engine=engine)
    assert (report.n_images, report.settled_on) == (34, 15)
    assert_same(there, here, place)


def test_features_are_kept_in_the_cache_and_found_there(cluster, place, tmp_path):
    from visvm.encoders.cache import FeatureCache

    cache = tmp_path / "features.sqlite"
    given = {"cache": cache, "transform": "crop"}
    here, there = make(place, **given), make(place, **given)
    there.learn(place / "base", engine=RayEngine(actors=1))
    with FeatureCache(cache) as opened:
        assert opened.info().n_images == 90
    here.learn(place / "base")
    assert_same(there, here, place)


def test_fewer_images_than_workers(cluster, place):
    here, there = (make(place, ridge=1.0, layers=(1, 3)) for _ in range(2))
    for model, options in ((here, {}), (there, {"engine": RayEngine(actors=2)})):
        model.learn(place / "base")
        model.learn(sorted((place / "later").rglob("*.png"))[:1], ["yellow"], **options)
    assert_same(there, here, place)


def test_empty_partitions_and_partitions_without_a_readable_image_add_nothing(cluster, place):
    model = make(place, ridge=1.0, layers=(1, 3))
    model.learn(place / "base")
    settled = [ray.put(model.model_.head.settled)]
    empty = {
        "place": np.empty(0, dtype=int),
        "label": np.empty(0, dtype=object),
        "image": _objects([]),
    }
    spoiled = {
        "place": np.array([4]),
        "label": np.array(["red"]),
        "image": _objects([ReadImage("x", reason="broken")]),
    }
    parts = [_sum(batch, settled)["part"][0] for batch in (empty, spoiled, empty)]
    total = _add({"part": _objects(parts)})["part"][0]
    assert total.statistics is None
    assert {place: each.reason for place, each in total.unreadable.items()} == {4: "broken"}
    options = model.model_.head.settled.options
    assert _settle(spoiled, options, leader=None)["settled"][0][0] is None
    whole = Part(model.model_.head.statistics.copy(), {})
    whole.add(total)
    assert whole.statistics.n_samples == 90


def test_one_sum_comes_back_of_a_tree_also_where_blocks_are_empty(cluster, place):
    model = make(place, ridge=1.0, layers=(1, 3))
    model.learn(place / "base")
    paths = sorted((place / "base").rglob("*.png"))
    features = model.layer_features(paths)
    rows = [
        {
            "place": number,
            "label": path.parent.name,
            "image": ReadImage(str(path), features={0: row}),
        }
        for number, (path, row) in enumerate(zip(paths, features, strict=True))
    ]
    given = Labelled([*paths], [path.parent.name for path in paths])
    settled = model.model_.head.settled
    plan = Plan(
        images=given,
        sample=(),
        rest=(),
        skip_unreadable=False,
        options=settled.options,
        encoder_name="",
        reading=None,
        actors=1,
        core=1.0,
        gpu=False,
        batch_size=8,
        together=6,
    )
    session = ray.remote(num_cpus=0)(Probe).remote(plan)
    for spare in (False, True):
        part, n_sums = ray.get(session.count.remote(settled, rows, spare))
        kept = [number for number in range(90) if not spare or (number % 6 and number < 40)]
        assert n_sums == 1
        assert part.statistics.n_samples == len(kept)
        wanted = settled.lift(features[kept]).sum(axis=0)
        np.testing.assert_allclose(part.statistics.feature_sum[:-1], wanted, rtol=1e-9)
    ray.kill(session)


def test_a_lost_leader_is_told_in_one_line_and_nothing_is_left_running(cluster, place):
    model = make(place, ridge=1.0, layers=(1, 3))
    model.learn(place / "base")
    paths = sorted((place / "later").rglob("*.png")) * 5

    def kill_the_leader(stage, done, total):
        for process in processes("Leader"):
            os.kill(process, signal.SIGKILL)

    with refused("ray-failed", VisvmError):
        model.learn(
            [Slow(str(path)) for path in paths],
            ["red"] * 200,
            engine=RayEngine(actors=1),
            progress=kill_the_leader,
        )
    assert sum(model.class_counts_) == 90


def test_an_interrupted_session_ends_what_it_began(cluster, place):
    model = make(place, ridge=1.0, layers=(1, 3))
    model.learn(place / "base")
    paths = sorted((place / "later").rglob("*.png")) * 20

    def interrupt(stage, done, total):
        if done > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.learn(
            [Slow(str(path)) for path in paths],
            ["red"] * 800,
            engine=RayEngine(actors=1),
            progress=interrupt,
        )
    until = time.monotonic() + 30
    while processes("Leader") or processes("_Encode"):
        assert time.monotonic() < until
        time.sleep(0.2)


def test_more_encoders_than_the_cluster_bears_are_refused(cluster, place):
    model = make(place, ridge=1.0, layers=(1, 3))
    model.learn(place / "base")
    with refused("ray-actors", InputError) as caught:
        model.learn(place / "later", engine=RayEngine(actors=4))
    assert "at most 3" in str(caught.value)


@pytest.mark.parametrize(
    ("resources", "asked", "actors", "core"),
    [
        ({"CPU": 1.0}, None, 1, 0.4),
        ({"CPU": 2.0}, None, 1, 1.0),
        ({"CPU": 8.0}, None, 4, 1.0),
        ({"CPU": 8.0}, 7, 7, 1.0),
        ({"CPU": 64.0, "GPU": 8.0}, None, 8, 1.0),
        ({"CPU": 4.0, "GPU": 8.0}, None, 3, 1.0),
        ({"CPU": 1.0}, 2, None, None),
        ({"CPU": 64.0, "GPU": 2.0}, 3, None, None),
        ({}, None, None, None),
    ],
)
def test_encoders_are_shared_out_so_that_the_rest_finds_room(place, resources, asked, actors, core):
    encoder = make(place).load_encoder()
    work = Work(
        images=Labelled([], []),
        encoder=encoder,
        transform=Transform("crop", encoder.preprocessing),
        cache=False,
        skip_unreadable=False,
        options=HeadOptions(),
        start=None,
        sample=(),
        calibration=frozenset(),
    )
    engine = RayEngine(actors=asked)
    if actors is None:
        with refused("ray-actors", InputError):
            engine._plan(work, resources)
        return
    plan = engine._plan(work, resources)
    assert (plan.actors, plan.core, plan.gpu) == (actors, core, "GPU" in resources)
    assert plan.actors * plan.core + plan.core <= resources["CPU"]


def test_contents_and_numbers_that_cannot_be_are_refused(place):
    with refused("ray-contents", InputError):
        make(place).learn([b"one", b"two"], ["a", "b"], engine=RayEngine())
    for name in ("actors", "batch_size", "images_per_sum"):
        with refused(f"parameter-{name.replace('_', '-')}", InputError):
            RayEngine(**{name: 0})


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:{port}",
        "ray://[::1]:{port}",
        "no-such-host.invalid:6379",
        "a..b:6379",
        "127.0.0.1:123456",
    ],
)
def test_an_address_where_nothing_listens_is_refused_at_once(place, address, monkeypatch):
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with socket.socket() as taken:  # bound, but it does not listen
        taken.bind(("127.0.0.1", 0))
        address = address.format(port=taken.getsockname()[1])
        with refused("ray-unreachable", InputError) as caught:
            make(place).learn(place / "base", engine=RayEngine(address))
        assert address in str(caught.value)
        assert "ray start --head" in str(caught.value)


def test_more_encoders_than_cores_are_refused_where_a_cluster_is_begun(place, monkeypatch):
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with refused("ray-actors", InputError) as caught:
        make(place).learn(place / "base", engine=RayEngine("local", actors=3))
    assert "at most 2" in str(caught.value)


def test_another_encoder_on_a_worker_is_refused_in_one_line(cluster, place, tmp_path):
    tiny.write_encoder(tmp_path)
    model = ImageClassifier(str(tmp_path / "tiny.onnx"), 60, ridge=1.0, layers=(1, 3), cache=False)
    model.learn(place / "base")
    tiny.write_encoder(tmp_path, seed=1)
    with refused("encoder-differs", EncoderError):
        model.learn(place / "later", engine=RayEngine(actors=1))
    assert sum(model.class_counts_) == 90


def test_an_error_of_ours_keeps_its_code_wherever_it_happens(cluster, place, tmp_path):
    with pytest.raises(MemoryLimitError):  # where the base session settles
        make(place, memory_limit=1000).learn(place / "base", engine=RayEngine(actors=1))
    (tmp_path / "folder").mkdir()
    model, wanted = make(place, cache=tmp_path / "folder"), []
    for engine in (None, RayEngine(actors=1)):  # where images are read
        with pytest.raises(VisvmError) as caught:
            model.learn(place / "base", engine=engine)
        wanted.append((type(caught.value), caught.value.code, str(caught.value)))
    assert wanted[0] == wanted[1]


def test_the_command_line_learns_on_ray(cluster, place, tmp_path, visvm):
    options = ("--encoder", place / "tiny.onnx", "--components", 60, "--no-cache", "--quiet")
    assert visvm("learn", tmp_path / "here.visvm", place / "base", *options)[0] == 0
    on_ray = ("--ray", "local", "--actors", 1, "--batch-size", 4)
    there = ("learn", tmp_path / "there.visvm", (place / "base").as_uri(), *options, *on_ray)
    assert visvm(*there) == (0, "", "")
    before = (tmp_path / "there.visvm").read_bytes()
    assert visvm(*there)[0] == 0  # already learned
    assert (tmp_path / "there.visvm").read_bytes() == before
    here, there = (
        ImageClassifier.load(tmp_path / name, cache=False) for name in ("here.visvm", "there.visvm")
    )
    assert_same(there, here, place)


def test_options_without_ray_and_ray_that_is_not_installed(place, tmp_path, visvm, monkeypatch):
    given = ["learn", tmp_path / "m.visvm", place / "base", "--encoder", place / "tiny.onnx"]
    refused_line(visvm(*given, "--actors", 2), "--ray", code="option-without-ray")
    monkeypatch.setitem(sys.modules, "ray", None)
    told = "pip install 'visvm[ray]'"
    refused_line(visvm(*given, "--ray", "local"), told, code="package-missing")
    assert not (tmp_path / "m.visvm").exists()
