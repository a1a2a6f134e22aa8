"""A model as one ONNX graph gives the answers of visvm, in ONNX Runtime alone."""

import errno
import json
import os
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from PIL import Image

from tests import tiny
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.encoders.encoder import Preprocessing
from visvm.encoders.transform import TRANSFORMS, Transform
from visvm.errors import EncoderError, InputError, ModelFileError
from visvm.head.familiarity import smoothing, tallied
from visvm.head.nearness import Spread
from visvm.model.portable import answers, writing
from visvm.model.portable.graph import PortableOptions, portable
from visvm.model.portable.metadata import described
from visvm.model.portable.net import IR_VERSION, OPSET, Net
from visvm.model.portable.pixels import PIXELS, add_pixels
from visvm.model.predictor import ImagePredictor

LABELS = ("red", "green", "blue", "yellow")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("portable")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "photos", LABELS, n=8)
    tiny.write_photos(folder / "asked", LABELS, n=3, seed=1)
    return folder


@pytest.fixture(scope="module")
def model(place):
    made = ImageClassifier(str(place / "tiny.onnx"), 60, cache=False, ridge=3.0, layers=(1, 3))
    made.learn(place / "photos")
    assert not made.model_.head.settled.lift.mixer.is_identity
    return made


@pytest.fixture(scope="module")
def asked(place):
    return sorted((place / "asked").rglob("*.png"))


def run(path, **inputs):
    """All outputs, by name, of ONNX Runtime, which knows nothing of visvm."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def levels(paths):
    return np.stack([np.asarray(Image.open(path).convert("RGB")) for path in paths])


def said(path):
    return {each.key: each.value for each in onnx.load(path).metadata_props}


def compare(made, path, photos, tolerance=2e-6, given=None):
    """Refuse other answers than those of ``predict``; return the outputs."""
    found = run(path, image=levels(photos) if given is None else given)
    labels = json.loads(said(path)["visvm.labels"])
    wanted = made.predict(photos, top=len(labels))
    for row, answer in enumerate(wanted):
        named = [labels[place] for place in found["top"][row]]
        assert named == [label for label, _ in answer.top][: len(named)]
        shares = [found["probabilities"][row, labels.index(label)] for label, _ in answer.top]
        assert shares == pytest.approx([share for _, share in answer.top], abs=tolerance)
        if "known" in found:
            assert found["known"][row] == pytest.approx(answer.known, abs=1e-3)
        else:
            assert answer.known is None
    return found


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_the_file_answers_as_the_model_does(model, place, asked, tmp_path, transform):
    own = replace(model.model_.encoder, transform=transform)
    made = ImagePredictor.of(replace(model.model_, encoder=own), cache=False)
    written = made.export_onnx(tmp_path / "m.onnx")
    assert written.bytes == (tmp_path / "m.onnx").stat().st_size
    found = compare(made, tmp_path / "m.onnx", asked)
    assert set(found) == {"scores", "probabilities", "top", "known"}
    raw = made.predict(asked, raw=True, top=1)
    assert found["scores"].max(axis=1) == pytest.approx([each.score for each in raw], abs=1e-5)
    made.export_onnx(tmp_path / "float.onnx", pixels="float32", top=2)
    given = levels(asked).astype(np.float32) / 255
    assert compare(made, tmp_path / "float.onnx", asked, given=given)["top"].shape[1] == 2


@st.composite
def pictures(draw):
    """A smooth picture of any size, as photos are, for any encoder."""
    seed, size = draw(st.integers(0, 99)), draw(st.integers(1, 40))
    how = Preprocessing(
        size,
        size + draw(st.integers(0, 9)),
        (0.485, 0.456, 0.406),
        draw(st.sampled_from([(0.229, 0.224, 0.225), (1.0, 1.0, 1.0)])),
    )
    spots = np.random.default_rng(seed).integers(30, 226, (5, 4, 3), dtype=np.uint8)
    sides = draw(st.integers(1, 150)), draw(st.integers(1, 150))
    return Image.fromarray(spots).resize(sides, Image.Resampling.BICUBIC), how


@settings(max_examples=25)
@given(pictures(), st.sampled_from(TRANSFORMS), st.sampled_from(tuple(PIXELS)))
def test_pixels_are_those_of_the_transform(drawn, transform, kind):
    photo, how = drawn
    net = Net()
    net.op("Identity", add_pixels(net, "image", kind, transform, how), name="pixels")
    image = helper.make_tensor_value_info("image", PIXELS[kind], ["n", "h", "w", 3])
    sides = ["n", 3, how.size, how.size]
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, sides)
    opsets = [helper.make_opsetid("", OPSET)]
    graph = net.graph("pixels", [image], [pixels])
    made = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    shown = np.asarray(photo)[None]
    (found,) = session.run(None, {"image": shown if kind == "uint8" else np.float32(shown) / 255})
    away = np.abs(found[0] - Transform(transform, how).pixels(photo))
    steps = away * 255 * np.array(how.std)[:, None, None]  # in grey levels
    # a level where Pillow resizes in the other order; more where it halves first (reducing_gap)
    assert steps.max() < (1.01 if max(photo.size) < 6 * how.size else 12.0)


def test_forgotten_classes_are_not_in_it(place, model, asked, tmp_path):
    made = ImageClassifier.of(model.model_, cache=False).forget_class("green")
    made.export_onnx(tmp_path / "m.onnx")
    found = compare(made, tmp_path / "m.onnx", asked)
    assert found["scores"].shape[1] == 3
    assert json.loads(said(tmp_path / "m.onnx")["visvm.labels"]) == ["blue", "red", "yellow"]


def test_a_model_without_sums_and_one_with_numbers(place, asked, tmp_path):
    paths = sorted((place / "photos").rglob("*.png"))
    made = ImageClassifier(str(place / "tiny.onnx"), None, cache=False, ridge=1.0, layers=(3,))
    made.learn(paths, [LABELS.index(path.parent.name) for path in paths])
    made.export(tmp_path / "p.visvm")
    predictor = ImagePredictor.load(tmp_path / "p.visvm", for_prediction=True)
    predictor.export_onnx(tmp_path / "m.onnx")
    compare(predictor, tmp_path / "m.onnx", asked)
    assert json.loads(said(tmp_path / "m.onnx")["visvm.labels"]) == [0, 1, 2, 3]


def test_a_model_that_cannot_tell_strangers_has_no_such_output(model, asked, tmp_path):
    made = ImagePredictor.of(replace(model.model_, spread=None), cache=False)
    made.export_onnx(tmp_path / "m.onnx")
    assert "known" not in compare(made, tmp_path / "m.onnx", asked)


def test_the_head_alone_takes_features(model, asked, tmp_path):
    made = model.export_onnx(tmp_path / "h.onnx", head_only=True)
    assert made.encoder_bytes == 0
    features = model.layer_features(asked)
    found = run(tmp_path / "h.onnx", layer_features=features)
    assert found["scores"] == pytest.approx(model.scores(features), abs=1e-5)


def test_smaller_weights_are_smaller_and_nearly_as_good(model, asked, tmp_path):
    paths = {kind: tmp_path / f"{kind}.onnx" for kind in ("float32", "float16", "int8")}
    large = replace(model.model_, head=wide(model.model_.head, 3000), exported_counts=(8,) * 4)
    sizes, scores = {}, {}
    for kind, path in paths.items():
        made = portable(large, None, None, PortableOptions(kind, head_only=True))
        onnx.save(made, path)
        onnx.checker.check_model(made, full_check=True)
        sizes[kind] = path.stat().st_size
        scores[kind] = run(path, layer_features=model.layer_features(asked))["scores"]
    assert sizes["int8"] < 0.4 * sizes["float32"] < sizes["float16"] < 0.65 * sizes["float32"]
    spread = np.ptp(scores["float32"])
    assert 0 < np.abs(scores["float16"] - scores["float32"]).max() < 2e-3 * spread
    assert 0 < np.abs(scores["int8"] - scores["float32"]).max() < 0.1 * spread


def test_known_is_as_exact_with_smaller_weights(model, tmp_path):
    n, generator = 70, np.random.default_rng(3)
    labels = np.array([f"{number:02}" for number in range(n)])
    own = replace(
        model.model_.head,
        classes=labels,
        sums=None,
        coefficients=generator.normal(size=(61, n)),
    )
    features = generator.normal(size=(40, 3 * tiny.WIDTH)).astype(np.float32)
    held = replace(model.model_, head=own, spread=None, exported_counts=(1,) * n)
    lifted = own.looks(features)[1]
    d = lifted.shape[1]
    spread = Spread(lifted.mean(axis=0) + generator.normal(size=(n, d)), np.eye(d))
    unit = np.median(spread.squares(lifted).min(axis=1)) ** 0.5
    spread = replace(spread, root=np.linalg.qr(generator.normal(size=(d, d)))[0] / unit)
    sums = tallied(np.geomspace(0.02, 2.0, 101))
    held = replace(held, spread=spread, calibration=replace(held.calibration, distances=sums))
    for kind in ("float32", "float16", "int8"):
        made = portable(held, None, None, PortableOptions(kind, head_only=True))
        onnx.save(made, tmp_path / "m.onnx")
        found = run(tmp_path / "m.onnx", layer_features=features)
        wanted = held.known(held.looks(features))
        assert np.ptp(wanted) > 0.1
        assert found["known"] == pytest.approx(wanted, abs=2e-4 if kind == "float32" else 0.05)


def test_a_graph_that_tells_strangers_otherwise_is_not_written(model, tmp_path, monkeypatch):
    def turned(sums):
        *found, width = smoothing(sums)
        return *found, -width

    monkeypatch.setattr(answers, "smoothing", turned)
    with refused("export-differs", EncoderError):
        model.export_onnx(tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def wide(head, width):
    """A head with a larger map, of other numbers."""
    from visvm.head.lift import KernelMap, Lift

    lift = Lift(head.settled.lift.mixer, KernelMap(tiny.WIDTH, width, 1))
    generator = np.random.default_rng(0)
    coefficients = generator.normal(size=(width + 1, len(head.classes))) * 1e-6
    settled = replace(head.settled, lift=lift)
    return replace(head, settled=settled, sums=None, coefficients=coefficients)


def test_it_says_what_it_is(model, tmp_path):
    model.export_onnx(tmp_path / "m.onnx", precision="float16")
    entries = said(tmp_path / "m.onnx")
    assert json.loads(entries["visvm.encoder"])["sha256"] == model.load_encoder().digest
    assert str(model.encoder_name) not in str(entries)  # a path tells about its owner
    assert entries["visvm.precision"] == "float16"
    assert float(entries["visvm.unknown"]) == 0.05
    assert "uint8" in entries["visvm.how_to"]


def test_twenty_thousand_classes(model, tmp_path):
    head = model.model_.head
    labels = np.array([f"{number:05}" for number in range(20_000)])
    coefficients = np.random.default_rng(0).normal(size=(61, 20_000))
    many = replace(head, classes=labels, sums=None, coefficients=coefficients)
    held = replace(model.model_, head=many, spread=None, exported_counts=(1,) * 20_000)
    made = ImagePredictor.of(held, cache=False)
    made.export_onnx(tmp_path / "m.onnx", head_only=True)
    features = np.random.default_rng(1).normal(size=(2, 3 * tiny.WIDTH)).astype(np.float32)
    found = run(tmp_path / "m.onnx", layer_features=features)
    assert found["top"][:, 0].tolist() == made.scores(features).argmax(axis=1).tolist()


def test_what_cannot_be_exported_is_refused_and_leaves_nothing(model, place, tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    for options, code in (
        ({"precision": "int4"}, "precision-unknown"),
        ({"pixels": "int8"}, "pixels-unknown"),
        ({"top": 0}, "parameter-top"),
    ):
        with refused(code, InputError):
            model.export_onnx(path, **options)
    with refused("onnx-name", InputError):
        model.export_onnx(tmp_path / "m.visvm")
    with pytest.raises(ValueError, match="knows no class"):
        ImageClassifier(str(place / "tiny.onnx"), cache=False).export_onnx(path)
    monkeypatch.setattr(writing, "_MOST_BYTES", 10_000)
    with refused("onnx-too-large", ModelFileError):
        model.export_onnx(path)
    monkeypatch.undo()
    monkeypatch.setitem(writing._TOLERANCE, "float32", -1.0)
    with refused("export-differs", EncoderError):
        model.export_onnx(path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_what_was_there(model, tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"other")
    with refused("file-exists", ModelFileError):
        model.export_onnx(path, replaces=False)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("visvm.encoders.files.os.fsync", full)
    with refused("file-unwritable", ModelFileError):
        model.export_onnx(path)
    assert path.read_bytes() == b"other"
    assert not list(tmp_path.glob("*.part"))


def encoder_of(place, folder, change):
    """tiny.onnx with something changed in its graph."""
    made = tiny.model()
    change(made)
    onnx.save(made, folder / "tiny.onnx")
    (folder / "tiny.onnx.json").write_text((place / "tiny.onnx.json").read_text())
    changed = ImageClassifier(str(folder / "tiny.onnx"), 20, cache=False, ridge=1.0, layers=(3,))
    changed.learn(place / "photos")
    return changed


def test_operators_of_others_are_refused(place, tmp_path):
    def change(made):
        made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        gelu = helper.make_node("Gelu", ["inside_2"], ["relu_2"], domain="com.microsoft")
        next(n for n in made.graph.node if n.output[0] == "relu_2").CopyFrom(gelu)

    made = encoder_of(place, tmp_path, change)
    with refused("operators-nonstandard", EncoderError):
        made.export_onnx(tmp_path / "m.onnx")
    made.export_onnx(tmp_path / "m.onnx", head_only=True)


def test_an_encoder_of_a_newer_opset_keeps_it(place, asked, tmp_path):
    def change(made):
        made.opset_import[0].version = 20

    made = encoder_of(place, tmp_path, change)
    made.export_onnx(tmp_path / "m.onnx")
    compare(made, tmp_path / "m.onnx", asked)
    assert onnx.load(tmp_path / "m.onnx").opset_import[0].version == 20


def test_an_encoder_that_names_the_standard_operators_in_full(place, asked, tmp_path):
    def change(made):
        made.opset_import[0].domain = made.graph.node[0].domain = "ai.onnx"

    made = encoder_of(place, tmp_path, change)
    made.export_onnx(tmp_path / "m.onnx")
    compare(made, tmp_path / "m.onnx", asked)
    assert [each.domain for each in onnx.load(tmp_path / "m.onnx").opset_import] == [""]


def test_the_encoder_is_named_with_its_form(model):
    for name in ("dinov2-s14@336", "dinov2-s14@224:112", "dinov2-s14"):
        own = replace(model.model_.encoder, name=name)
        entries = described(replace(model.model_, encoder=own), "uint8", "float32")
        assert json.loads(entries["visvm.encoder"])["name"] == name


def test_an_encoder_in_torch_is_refused(model, tmp_path):
    with refused("encoder-not-onnx", EncoderError):
        writing.encoder_graph("owner/model")


def test_the_command(visvm, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model.save("m.visvm")
    code, out, err = visvm("export", "m.visvm", "m.onnx", "--precision", "float16", "--top", "2")
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert "float16" in out
    outcome = visvm("predict", "m.onnx", "photo.jpg")
    assert (outcome[0], outcome.error_code) == (2, "file-foreign")
    assert "exported from" in outcome[2]
    assert run("m.onnx", image=np.zeros((1, 9, 7, 3), np.uint8))["top"].shape == (1, 2)
    before = sorted(tmp_path.iterdir())
    for arguments, code in (
        (("m.onnx",), "file-exists"),
        (("x.visvm", "--head-only"), "option-of-onnx"),
        (("--for-site", "x.onnx"), "option-of-onnx"),
    ):
        outcome = visvm("export", "m.visvm", *arguments)
        assert (outcome[0], outcome.error_code) == (2, code)
    assert sorted(tmp_path.iterdir()) == before
