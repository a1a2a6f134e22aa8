"""Sums from elsewhere: what no images could have is refused, what hardly any have is told."""

import warnings

import numpy as np
import pytest

from tests import tiny
from tests.model.raw import rewrite
from tests.refusals import refused
from visvm import ImageClassifier, SiteStatistics
from visvm.encoders.loading import load_encoder
from visvm.errors import IncompatibleModelError, ModelFileError

WIDTHS = {"thin": 150, "dense": 12}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sums")
    encoder = load_encoder(str(tiny.write_encoder(folder)))
    tiny.write_photos(folder / "base", n=4)
    tiny.write_photos(folder / "site", ("red", "yellow"), n=5, seed=1)
    for form, width in WIDTHS.items():
        model = ImageClassifier(encoder, n_components=width, cache=False, layers=(3,), ridge=1.0)
        model.learn(folder / "base")
        model.save(folder / f"{form}.visvm")
        model.learn_statistics(folder / "site").save(folder / f"{form}.sums", reveal_features=True)
    return folder


@pytest.fixture(params=WIDTHS)
def form(request):
    return request.param


@pytest.fixture
def merge(place, form, tmp_path):
    """Merge a site's sums, changed so, into the model; return it."""

    def merged(change=lambda header, tensors: None):
        path = tmp_path / "site.sums"
        path.write_bytes((place / f"{form}.sums").read_bytes())
        rewrite(path, change)
        model = ImageClassifier.load(place / f"{form}.visvm")
        return model.merge(SiteStatistics.load(path))

    return merged


def counted(counts):
    """Give the sums these counts, header and all."""

    def change(header, tensors):
        tensors["class_sums"][-1] = counts
        header["counts"] = [round(count) for count in counts]

    return change


def test_sums_as_a_site_sends_them_are_merged(merge):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dict(zip(merge().classes_, merge().class_counts_, strict=True))["red"] == 9


@pytest.mark.parametrize("counts", [(-5, 5), (0, 5), (2.5, 5), (1e300, 1)])
def test_a_file_with_counts_that_no_images_have_is_refused(merge, counts):
    with refused("file-altered", ModelFileError):
        merge(counted(counts))


def test_counts_of_the_header_are_those_of_the_sums(merge):
    with refused("file-altered", ModelFileError):
        merge(lambda header, _: header.update(counts=[5, 6]))
    with refused("file-altered", ModelFileError):
        merge(lambda header, _: header.update(counts=[-5, 5]))


@pytest.mark.parametrize("counts", [(1e15, 5), (5, 10**9), (50, 5)])
def test_counts_that_the_other_sums_belie_are_refused(merge, counts):
    with refused("sums-impossible", IncompatibleModelError):
        merge(counted(counts))


def test_sums_of_features_below_zero_are_refused(merge):
    def negate(_, tensors):
        tensors["class_sums"][3] = -7.0

    with refused("sums-impossible", IncompatibleModelError):
        merge(negate)


def test_class_sums_that_the_scatter_belies_are_refused(merge):
    def inflate(_, tensors):
        tensors["class_sums"][:-1, 0] *= 3.0

    with refused("sums-impossible", IncompatibleModelError):
        merge(inflate)


def test_a_scatter_that_is_none_is_refused(merge, form):
    def spoil(_, tensors):
        if form == "dense":
            tensors["scatter"] *= -1.0
        else:
            tensors["targets"] *= 3.0

    with refused("sums-impossible", IncompatibleModelError):
        merge(spoil)


def test_more_rows_than_images_are_refused(place, merge, form):
    if form == "dense":
        pytest.skip("there are no rows")

    def add(_, tensors):
        tensors["factor.0"] = np.concatenate([tensors["factor.0"], np.zeros((20, 150))])
        tensors["targets"] = np.concatenate([tensors["targets"], np.zeros((20, 2))])

    with refused("sums-impossible", IncompatibleModelError):
        merge(add)


def test_features_of_another_size_are_merged_with_a_warning(merge, form):
    def enlarge(_, tensors):
        tensors["class_sums"][:-1] *= 50.0
        for name in tensors:
            if name.startswith("factor") or name == "cross":
                tensors[name] *= 50.0
            elif name == "scatter":
                tensors[name] *= 2500.0

    with pytest.warns(UserWarning, match="5[0-9.]+ times"):
        assert "yellow" in merge(enlarge).classes_


def test_so_are_far_more_images_than_the_sums_look_like(merge):
    with pytest.warns(UserWarning, match="times"):
        merge(counted((50_000, 50_000)))


def test_a_model_that_has_merged_and_forgotten_much_can_be_merged(place, form, tmp_path):
    model = ImageClassifier.load(place / f"{form}.visvm")
    site = SiteStatistics.load(place / f"{form}.sums")
    for _ in range(5):
        model.merge(site)
        model.unmerge(site)
        model.learn(place / "site")
        model.forget(place / "site")
    model.save(tmp_path / "much.visvm")
    other = ImageClassifier.load(place / f"{form}.visvm")
    other.learn(place / "site")
    assert sum(other.merge(SiteStatistics.load(tmp_path / "much.visvm")).class_counts_) == 34
