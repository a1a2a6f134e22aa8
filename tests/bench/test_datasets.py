import dataclasses
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests import tiny
from tests.bench.test_cifar import NAMES, entries, write_cifar
from tests.refusals import refused
from visvm.bench import datasets
from visvm.bench.cifar import bmp, read_split
from visvm.bench.datasets import DATASETS
from visvm.bench.loading import (
    ImageData,
    LabelledImages,
    data_root,
    examine_data,
    load_dataset,
    read_content,
    require_present,
)
from visvm.errors import ImageError, InputError

pytestmark = pytest.mark.slow

UNPACK = Path(__file__).parents[3] / "shared/data/unpack"
PROTOCOL = Path(__file__).parents[3] / "shared/PROTOCOL.md"


@pytest.fixture(autouse=True)
def no_data_root(monkeypatch):
    monkeypatch.delenv("VISVM_DATA", raising=False)


@pytest.fixture
def own(tmp_path):
    """A folder of one's own: three classes, 4 training and 2 test images each."""
    tiny.write_photos(tmp_path / "own/train", n=4)
    tiny.write_photos(tmp_path / "own/test", n=2, seed=1)
    return tmp_path / "own"


def write_names(folder, classes, n=1):
    """Files that are images by name only, which is all that is looked at."""
    for label in classes:
        (folder / label).mkdir(parents=True)
        for number in range(n):
            (folder / label / f"{number}.jpg").write_bytes(
                f"{folder.name} {label} {number}".encode()
            )


def write_set(root, name, classes, n_train=2, n_test=1):
    write_names(root / name / "train", classes, n_train)
    write_names(root / name / "test", classes, n_test)
    return root


def labels(n):
    return [f"class {number:03}" for number in range(n)]


def refusal(code, *arguments, **options):
    with refused(code, InputError) as caught:
        load_dataset(*arguments, **options)
    return str(caught.value)


def state(root, name):
    return next(each for each in examine_data(root) if each.dataset.name == name)


def test_the_table_is_the_papers():
    sizes = {known.name: (known.n_classes, known.b0, known.b_half) for known in DATASETS.values()}
    hundred, two_hundred = (100, "B0 Inc10", "B50 Inc10"), (200, "B0 Inc20", "B100 Inc20")
    assert sizes == {
        **dict.fromkeys(["cifar100", "aircraft", "cars", "food101", "ucf101"], hundred),
        **dict.fromkeys(["cub200", "objectnet", "imagenet-r"], two_hundred),
        "sun397": (300, "B0 Inc30", "B150 Inc30"),
    }
    assert list(DATASETS) == [known.name for known in DATASETS.values()]


@pytest.mark.skipif(not PROTOCOL.is_file(), reason="the protocol's page is not here")
def test_the_table_agrees_with_the_protocols_page():
    """Row by row: classes, sessions, and every number of test images."""
    titles = {"CIFAR100": "cifar100", "FGVCAircraft": "aircraft", "StanfordCars": "cars"}
    rows = re.findall(
        r"^\| (\S+) \| (\d+)[^|]*\| (\d+)/(\d+) \| (\d+)/(\d+) \| ([^|]*)\|$",
        PROTOCOL.read_text(),
        re.MULTILINE,
    )
    assert len(rows) == 9
    for title, n_classes, *sessions, counts in rows:
        known = DATASETS[titles.get(title, title.lower())]
        assert (
            str(known.n_classes),
            *map(str, (known.increment, known.increment, known.half, known.increment)),
        ) == (
            n_classes,
            *sessions,
        )
        published = {str(split.test) for split in known.splits}
        assert set(re.findall(r"≈?\d+ \d+", counts)) <= published


def test_the_data_folder_is_the_one_given_or_that_of_the_environment(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with refused("data-folder-unset", InputError) as caught:
        data_root(None)
    facts = ("--data FOLDER", "VISVM_DATA", "'visvm doctor data'")
    assert all(fact in str(caught.value) for fact in facts)
    monkeypatch.setenv("VISVM_DATA", str(tmp_path / "a"))
    assert data_root(None) == tmp_path / "a"
    assert data_root(tmp_path / "b") == tmp_path / "b"
    with refused("data-folder-missing", InputError) as caught:
        data_root(tmp_path / "missing")
    assert str(caught.value).startswith(f"--data says {tmp_path / 'missing'}")
    monkeypatch.setenv("VISVM_DATA", str(tmp_path / "gone"))
    with refused("data-folder-missing", InputError) as caught:
        data_root(None)
    assert str(caught.value).startswith(f"VISVM_DATA says {tmp_path / 'gone'}")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root(Path("~/b")) == tmp_path / "b"


def test_a_folder_of_ones_own(own):
    data = load_dataset(str(own), None)
    assert (data.name, data.classes) == (str(own), ["blue", "green", "red"])
    assert data.train.targets.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert data.test.targets.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.train.targets.dtype == np.intp
    assert data.train.images == sorted((own / "train").rglob("*.png"))
    assert data.test.images == sorted((own / "test").rglob("*.png"))


def test_so_many_of_each_class_are_the_first_by_path(own):
    data = load_dataset(str(own), None, train_per_class=3, test_per_class=1)
    assert [f"{path.parent.name}/{path.name}" for path in data.train.images[:4]] == [
        *("blue/0-0.png", "blue/0-1.png", "blue/0-2.png"),
        "green/0-0.png",
    ]
    assert data.train.targets.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert data.test.targets.tolist() == [0, 1, 2]
    assert len(load_dataset(str(own), None, train_per_class=9).train.images) == 12


@pytest.mark.parametrize("option", ["train_per_class", "test_per_class"])
def test_less_than_one_of_each_class_is_refused(own, option):
    line = refusal("images-limit-invalid", str(own), None, **{option: 0})
    assert f"'{option}'" in line
    assert "Got 0" in line


def test_train_and_test_must_have_the_same_classes_with_images(own):
    write_names(own / "test", ["grey"])
    line = refusal("split-classes-differ", str(own), None)
    assert "1 classes" in line
    assert "'grey'" in line
    (own / "train/grey").mkdir()
    with pytest.raises(InputError, match="train/grey"):
        load_dataset(str(own), None)


def test_what_is_no_data_set_is_refused_in_one_line(tmp_path, own):
    assert "one of cifar100, cub200, " in refusal("dataset-unknown", "cifar10", tmp_path)
    (own / "test").rename(own / "val")
    line = refusal("split-folder-missing", str(own), None)
    assert line.startswith(f"{own} has no folder test.")


@pytest.mark.parametrize(
    ("name", "classes", "dropped"),
    [
        ("food101", [*labels(100), "waffles"], ["waffles"]),
        ("ucf101", ["YoYo", *(f"Writing{label}" for label in labels(100))], ["YoYo"]),
        ("cars", labels(196), labels(196)[100:]),
        ("cub200", labels(200), []),
    ],
)
def test_a_name_gives_the_first_classes_of_the_sorted_folders(tmp_path, name, classes, dropped):
    data = load_dataset(name, write_set(tmp_path, name, classes))
    assert data.name == name
    assert data.classes == sorted(set(classes) - set(dropped))
    assert len(data.classes) == DATASETS[name].n_classes
    places = data.train.targets.tolist()
    assert places == np.repeat(np.arange(len(data.classes)), 2).tolist()
    assert [path.parent.name for path in data.train.images] == [
        data.classes[place] for place in places
    ]
    assert [path.parent.name for path in data.test.images] == data.classes


def test_a_name_with_too_few_classes_is_refused(tmp_path):
    line = refusal("dataset-incomplete", "sun397", write_set(tmp_path, "sun397", labels(299)))
    assert all(fact in line for fact in ("sun397", "299", "300", "'visvm doctor data'"))


def test_a_name_that_is_absent_says_where_it_must_be(tmp_path):
    line = refusal("dataset-missing", "cub200", tmp_path)
    assert f"{tmp_path}/cub200/{{train,test}}/CLASS/IMAGES" in line
    assert "VISVM_DATA" in refusal("data-folder-unset", "cub200", None)


def test_several_that_are_absent_are_named_at_once(tmp_path):
    with refused("dataset-missing", InputError) as caught:
        require_present(["cub200", "digits", "cars"], tmp_path)
    assert "cub200, cars" in str(caught.value)
    require_present(["cub200", "digits"], tmp_path)  # a single one is refused when it is read


@pytest.mark.parametrize("folder", ["cifar100/cifar-100-python", "cifar-100-python"])
def test_cifar_is_numbered_by_its_fine_labels(tmp_path, folder):
    write_cifar(tmp_path / folder, train_per_class=3)
    data = load_dataset("cifar100", tmp_path)
    content = entries(3, seed=1)
    assert data.classes == [name.decode() for name in NAMES]
    assert data.train.targets.tolist() == content[b"fine_labels"]
    assert (len(data.train.images), len(data.test.images)) == (300, 100)
    assert data.train.images[7] == bmp(content[b"data"][7].reshape(3, 32, 32).transpose(1, 2, 0))


def test_of_cifar_the_first_in_the_file_are_kept(tmp_path):
    write_cifar(tmp_path / "cifar-100-python", train_per_class=3)
    whole = load_dataset("cifar100", tmp_path)
    part = load_dataset("cifar100", tmp_path, train_per_class=2)
    seen = dict.fromkeys(range(100), 0)
    kept = []
    for place, target in enumerate(whole.train.targets.tolist()):
        seen[target] += 1
        if seen[target] <= 2:
            kept.append(place)
    assert part.train.targets.tolist() == whole.train.targets[kept].tolist()
    assert list(part.train.images) == [whole.train.images[place] for place in kept]
    assert len(part.test.images) == 100


def test_a_damaged_cifar_is_refused_in_one_line(tmp_path):
    folder = write_cifar(tmp_path / "cifar-100-python")
    (folder / "test").unlink()
    (folder / "meta").write_bytes(b"damaged")
    assert "cifar-100-python/meta " in refusal("cifar-damaged", "cifar100", tmp_path)


def small(classes=("a", "b"), train=(b"1", b"22"), targets=(0, 1), test=(b"3",)):
    return ImageData(
        "any",
        list(classes),
        LabelledImages(list(train), np.array(targets)),
        LabelledImages(list(test), np.array([0] * len(test))),
    )


def test_the_digest_tells_every_change_apart():
    variants = [
        small(),
        small(classes=("a", "c")),
        small(train=(b"1", b"23")),
        small(train=(b"12", b"2")),
        small(train=(b"22", b"1")),
        small(targets=(1, 0)),
        small(train=(b"1",), targets=(0,), test=(b"22", b"3")),
        small(train=(b"1", b"22", b"3"), targets=(0, 1, 0), test=()),
    ]
    assert len({read_content(data).digest for data in variants}) == len(variants)


def test_the_digest_is_of_the_content_and_not_of_its_place(own, tmp_path):
    digest = read_content(load_dataset(str(own), None)).digest
    own.rename(tmp_path / "moved")
    moved = load_dataset(str(tmp_path / "moved"), None)
    assert read_content(moved).digest == digest
    in_memory = LabelledImages(
        [path.read_bytes() for path in moved.train.images], moved.train.targets
    )
    assert read_content(ImageData("other", moved.classes, in_memory, moved.test)).digest == digest
    assert (
        read_content(load_dataset(str(tmp_path / "moved"), None, train_per_class=3)).digest
        != digest
    )
    moved.test.images[0].unlink()
    with refused("image-unreadable", ImageError) as caught:
        read_content(moved)
    assert re.search(r"0\.png .*No such file", str(caught.value))


def test_test_images_that_are_training_images_too_are_counted():
    assert read_content(small()).n_shared == 0
    assert read_content(small(train=(b"1", b"22"), test=(b"22",))).n_shared == 1


def test_without_a_folder_all_are_absent():
    states = examine_data(None)
    assert [each.dataset for each in states] == list(DATASETS.values())
    assert {(each.verdict, each.n_classes, each.folder) for each in states} == {
        ("absent", None, None)
    }


def test_what_is_there_is_counted_against_what_was_published(tmp_path, monkeypatch):
    count = datasets.Count
    splits = (
        datasets.Split("one", count(200), count(100)),
        datasets.Split("two", count(310, approximate=True), count(100)),
    )
    monkeypatch.setitem(DATASETS, "cars", dataclasses.replace(DATASETS["cars"], splits=splits))
    write_set(tmp_path, "cars", labels(196))
    found = state(tmp_path, "cars")
    assert (found.n_classes, found.n_train, found.n_test, found.verdict) == (
        196,
        200,
        100,
        "complete",
    )
    assert found.folder == str(tmp_path / "cars")
    (tmp_path / "cars/train/class 150/more.jpg").touch()  # beyond the benchmark's classes
    assert state(tmp_path, "cars").verdict == "complete"
    (tmp_path / "cars/train/class 003/more.jpg").touch()
    assert (state(tmp_path, "cars").n_train, state(tmp_path, "cars").verdict) == (
        201,
        "other counts",
    )
    for number in range(106):
        (tmp_path / f"cars/train/class 003/more {number}.jpg").touch()
    # within 1 % of ≈310
    assert (state(tmp_path, "cars").n_train, state(tmp_path, "cars").verdict) == (307, "complete")


def test_too_few_classes_are_other_counts(tmp_path):
    found = state(write_set(tmp_path, "ucf101", labels(7)), "ucf101")
    assert (found.n_classes, found.n_train, found.n_test, found.verdict) == (
        7,
        14,
        7,
        "other counts",
    )


def test_what_cannot_be_read_says_why(tmp_path):
    write_names(tmp_path / "food101/train", labels(3))
    (tmp_path / "cifar-100-python").mkdir()
    assert (state(tmp_path, "food101").verdict, state(tmp_path, "food101").n_classes) == (
        "unreadable",
        None,
    )
    assert "no folder test" in state(tmp_path, "food101").reason
    assert "No such file" in state(tmp_path, "cifar100").reason


@pytest.fixture(scope="session")
def real_cifar(tmp_path_factory):
    """The whole CIFAR-100: five seconds."""
    if not UNPACK.is_file():
        pytest.skip("the real CIFAR-100 is not here")
    root = tmp_path_factory.mktemp("real")
    subprocess.run([sys.executable, UNPACK, root, "cifar100"], check=True, capture_output=True)
    return root


def test_the_real_cifar(real_cifar):
    found = state(real_cifar, "cifar100")
    assert (found.verdict, found.n_classes, found.n_train, found.n_test) == (
        "complete",
        100,
        50000,
        10000,
    )
    data = load_dataset("cifar100", real_cifar, train_per_class=20)
    assert [data.classes[place] for place in (0, 1, 99)] == ["apple", "aquarium_fish", "worm"]
    assert np.bincount(data.train.targets).tolist() == [20] * 100
    assert np.bincount(data.test.targets).tolist() == [100] * 100
    with (real_cifar / "cifar100/cifar-100-python/test").open("rb") as file:
        raw = pickle.load(file)
    assert data.test.targets.tolist() == raw[b"fine_labels"]
    pixels, _ = read_split(real_cifar / "cifar100/cifar-100-python/test")
    np.testing.assert_array_equal(pixels, raw[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    Image.fromarray(pixels[4321]).save(real_cifar / "one.bmp")
    assert data.test.images[4321] == (real_cifar / "one.bmp").read_bytes()
