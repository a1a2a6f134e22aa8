import io
import os
import pickle
import struct

import numpy as np
import pytest
from PIL import Image

from tests.refusals import refused
from visvm.bench.cifar import BmpImages, bmp, read_class_names, read_split
from visvm.errors import InputError

NAMES = [f"class_{number:02}".encode() for number in range(100)]


def entries(per_class=1, seed=0):
    """What a small train or test file holds, classes in no order."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(np.arange(100), per_class)).tolist()
    data = generator.integers(0, 256, size=(len(labels), 3072), dtype=np.uint8)
    return {
        b"data": data,
        b"fine_labels": labels,
        b"coarse_labels": [0] * len(labels),
        b"batch_label": b"a batch",
    }


class Python2Pickler(pickle._Pickler):
    """Writes text as Python 2 did: the official files are such."""

    dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012 - as pickle has it

    def save_text(self, text):
        content = text.encode() if isinstance(text, str) else text
        self.write(pickle.BINSTRING + struct.pack("<i", len(content)) + content)

    dispatch[bytes] = dispatch[str] = save_text


def official(content):
    buffer = io.BytesIO()
    Python2Pickler(buffer, protocol=2).dump(content)
    return buffer.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def write_cifar(folder, train_per_class=2, test_per_class=1, write=official):
    """A small CIFAR-100 in its official layout."""
    folder.mkdir(parents=True)
    (folder / "train").write_bytes(write(entries(train_per_class, seed=1)))
    (folder / "test").write_bytes(write(entries(test_per_class, seed=2)))
    (folder / "meta").write_bytes(
        write({b"fine_label_names": NAMES, b"coarse_label_names": [b"a"] * 20})
    )
    return folder


def refusal(code, read, path):
    """The one line with which a file is refused."""
    with refused(code, InputError) as caught:
        read(path)
    line = str(caught.value)
    assert line.startswith(f"{path} ")
    assert line.isprintable()
    return line


def test_the_official_form_is_python_2s(tmp_path):
    content = official(entries())
    assert content.startswith(b"\x80\x02}")
    assert b"cnumpy.core.multiarray\n_reconstruct\n" in content
    assert b"_codecs" not in content
    assert set(pickle.loads(content, encoding="bytes")) == set(entries())


WRITERS = {
    "official": official,
    "protocol 2 of Python 3": lambda content: pickle.dumps(content, protocol=2),
    "protocol 4": lambda content: pickle.dumps(content, protocol=4),
    "keys as text": lambda content: pickle.dumps(
        {key.decode(): value for key, value in content.items()}, protocol=4
    ),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_pixels_labels_and_names_are_those_written(tmp_path, write):
    folder = write_cifar(tmp_path / "cifar", write=write)
    content = entries(2, seed=1)
    pixels, labels = read_split(folder / "train")
    assert (pixels.shape, pixels.dtype) == ((200, 32, 32, 3), np.uint8)
    assert (labels.tolist(), labels.dtype) == (content[b"fine_labels"], np.intp)
    for place in (0, 77, 199):
        red, green, blue = content[b"data"][place].reshape(3, 32, 32)
        np.testing.assert_array_equal(pixels[place], np.dstack([red, green, blue]))
    assert read_class_names(folder / "meta") == [name.decode() for name in NAMES]


def test_an_array_stored_by_columns_is_read_as_such(tmp_path):
    content = entries()
    content[b"data"] = np.asfortranarray(content[b"data"])
    (tmp_path / "train").write_bytes(official(content))
    pixels, _ = read_split(tmp_path / "train")
    np.testing.assert_array_equal(pixels.transpose(0, 3, 1, 2).reshape(100, 3072), content[b"data"])


def test_bmp_is_exactly_what_pillow_writes(tmp_path):
    folder = write_cifar(tmp_path / "cifar")
    pixels, _ = read_split(folder / "test")
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels[3])).save(buffer, "BMP")
    assert bmp(pixels[3]) == buffer.getvalue()
    with Image.open(io.BytesIO(bmp(pixels[3]))) as image:
        np.testing.assert_array_equal(np.asarray(image), pixels[3])


def test_images_are_made_one_by_one():
    pixels = np.random.default_rng(0).integers(0, 256, size=(6, 32, 32, 3), dtype=np.uint8)
    images = BmpImages(pixels)
    assert list(images) == [bmp(each) for each in pixels]
    assert images[-1] == images[np.intp(5)] == bmp(pixels[5])
    assert list(images[1:3]) == [images[1], images[2]]
    with pytest.raises(IndexError):
        images[6]


class Runs:
    """Whose pickle calls a function with a text."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    "function", [os.system, eval, np.fromfile, pickle.loads], ids=lambda function: function.__name__
)
def test_a_hostile_file_runs_nothing(tmp_path, protocol, function):
    witness = tmp_path / "witness"
    asks = {
        os.system: f"touch {witness}",
        eval: f"open({str(witness)!r}, 'w')",
        np.fromfile: str(witness),
        pickle.loads: pickle.dumps(Runs(os.system, f"touch {witness}")),
    }
    (tmp_path / "train").write_bytes(
        pickle.dumps({**entries(), b"more": Runs(function, asks[function])}, protocol=protocol)
    )
    refusal("cifar-name-refused", read_split, tmp_path / "train")
    assert not witness.exists()


def test_a_name_that_would_break_the_line_is_quoted(tmp_path):
    (tmp_path / "meta").write_bytes(b"\x80\x04\x8c\x05os\n\x1b[\x8c\x06system\x93.")
    line = refusal("cifar-name-refused", read_class_names, tmp_path / "meta")
    assert r"'os\n\x1b[.system'" in line


def test_numpys_own_unpickling_is_not_run(tmp_path):
    """A dtype of objects, whose bytes would be taken for addresses."""
    forged = official({**entries(), b"more": np.zeros(1, dtype=np.uint8)}).replace(b"u1", b"O8")
    (tmp_path / "train").write_bytes(forged)
    refusal("cifar-images-invalid", read_split, tmp_path / "train")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b".",
        b"no pickle at all",
        b"\x80\x02].",  # a list
        b"\x80\x02N.",
        b"\x80\xff.",  # a protocol to come
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fx.",  # forged length
        b"\x80\x04\x8b\xff\xff\xff\x7f.",
        b"\x80\x02cnumpy\nndarray\n}b.",  # state for the class itself
        b"\x80\x02cnumpy\nndarray\n)\x81.",  # an array made without a call
        b"\x80\x02Pid\n.",
        b"\x80\x02\x82\x01.",  # an extension that nobody registered
        b"\x80\x02U\x01as.",
    ],
)
def test_what_is_no_such_file_gets_one_line(tmp_path, content):
    (tmp_path / "train").write_bytes(content)
    refusal("cifar-damaged", read_split, tmp_path / "train")
    refusal("cifar-damaged", read_class_names, tmp_path / "train")


def test_an_array_made_without_a_call_has_no_images(tmp_path):
    (tmp_path / "train").write_bytes(b"\x80\x02}U\x04datacnumpy\nndarray\n)\x81s.")
    refusal("cifar-images-invalid", read_split, tmp_path / "train")
    refusal("cifar-names-invalid", read_class_names, tmp_path / "train")


def test_an_encoding_that_is_none_is_refused(tmp_path):
    (tmp_path / "train").write_bytes(b"\x80\x02c_codecs\nencode\n(K\x01K\x02tR.")
    refusal("cifar-name-refused", read_split, tmp_path / "train")


@pytest.mark.parametrize("write", [official, WRITERS["protocol 4"]], ids=["official", "protocol 4"])
def test_a_file_cut_short_gets_one_line_wherever_it_is_cut(tmp_path, write):
    content = write(entries())
    end = len(content)
    lengths = [*range(0, 400, 3), *range(400, end, end // 20), *range(end - 400, end, 7), end - 1]
    for length in lengths:
        (tmp_path / "train").write_bytes(content[:length])
        refusal("cifar-damaged", read_split, tmp_path / "train")


def altered(**changes):
    return {**entries(), **{name.encode(): value for name, value in changes.items()}}


IMAGES = np.zeros((100, 3072), dtype=np.uint8)


@pytest.mark.parametrize(
    ("content", "code", "facts"),
    [
        (altered(data=IMAGES[:, 1:]), "images-invalid", "(100, 3071) instead of (n, 3072)"),
        (altered(data=IMAGES.reshape(100, 3, 32, 32)), "images-invalid", "(n, 3072)"),
        (altered(data=IMAGES.astype(np.int16)), "images-invalid", "(n, 3072)"),
        (altered(data=IMAGES.astype(np.int8)), "images-invalid", "(n, 3072)"),
        (altered(data=IMAGES.astype(object)), "images-invalid", "(n, 3072)"),
        (altered(data=[[0] * 3072] * 100), "images-invalid", "(n, 3072)"),
        (altered(data=IMAGES[:99]), "counts-differ", "99 images and 100 fine_labels"),
        (altered(data=IMAGES[:0], fine_labels=[]), "classes-missing", "100 of its 100"),
        (altered(fine_labels=[*range(99), 98]), "classes-missing", "such as 99"),
        (altered(fine_labels=[*range(99), 100]), "labels-invalid", "from 0 to 99"),
        (altered(fine_labels=[*range(1, 100), -1]), "labels-invalid", "from 0 to 99"),
        (altered(fine_labels=[*range(99), 99.0]), "labels-invalid", "from 0 to 99"),
        (altered(fine_labels=b"x" * 100), "labels-invalid", "from 0 to 99"),
        ({b"data": IMAGES}, "labels-invalid", "fine_labels"),
        ({b"fine_labels": list(range(100))}, "images-invalid", "(n, 3072)"),
    ],
)
def test_what_a_split_must_hold(tmp_path, content, code, facts):
    (tmp_path / "test").write_bytes(official(content))
    assert facts in refusal(f"cifar-{code}", read_split, tmp_path / "test")


@pytest.mark.parametrize(
    ("names", "facts"),
    [
        (NAMES[:99], "99 fine_label_names, 99 of them different"),
        ([*NAMES[:99], NAMES[0]], "100 fine_label_names, 99 of them different"),
        ([*NAMES, b"one more"], "101 fine_label_names, 101 of them different"),
        ([*NAMES[:99], 7], "no list fine_label_names"),
        (None, "no list fine_label_names"),
    ],
)
def test_what_the_names_must_be(tmp_path, names, facts):
    (tmp_path / "meta").write_bytes(official({b"fine_label_names": names}))
    assert facts in refusal("cifar-names-invalid", read_class_names, tmp_path / "meta")


def test_a_file_that_is_not_there(tmp_path):
    assert "No such file" in refusal("cifar-unreadable", read_split, tmp_path / "train")
    assert "Is a directory" in refusal("cifar-unreadable", read_split, tmp_path)
