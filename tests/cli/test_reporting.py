"""Sentences about a session."""

from visvm.cli.reporting import _chosen, _chosen_encoder, _tested
from visvm.model.results import EncoderChoice, SessionTest, TransformChoice


def test_the_transform_is_told_with_its_reason():
    few = _chosen(TransformChoice("squash"))
    assert few == "transform squash, the default: too few photos or classes to try others"
    tried = {"crop": 0.825, "squash": 0.8, "pad": 0.75}
    default = _chosen(TransformChoice("squash", 40, tried))
    assert default.startswith("transform squash, as no other is clearly ahead: of 40 photos")
    assert default.endswith("crop 82.5 %, squash 80.0 %, pad 75.0 % right")
    assert "crop, the best: of 40" in _chosen(TransformChoice("crop", 40, tried))


def test_the_encoder_is_told_with_its_reason_and_what_each_has_shown():
    assert _chosen_encoder(EncoderChoice("a", "the only one")) == "encoder a, the only one"
    tried = {"a": 0.8, "b": 0.925}
    times = {"a": 43.0, "b": 120.4, "c": 300.0}
    assert _chosen_encoder(EncoderChoice("b", "clearly ahead", 40, tried, times, 2.5)) == (
        "encoder b, clearly ahead (2.5 minutes): of 40 photos left out in turn, "
        "b 92.5 % right at 120 ms an image, a 80.0 % right at 43 ms an image, "
        "c not tried at 300 ms an image"
    )


def test_accuracies_that_are_not_there_are_not_shown():
    first = SessionTest(1, 1.0, None, 1.0)
    assert _tested(first) == "accuracy on 1 test image of the classes known: 100.0 %"
    known = SessionTest(8, 0.75, 0.75, None, 0.5)
    said = "accuracy on 8 test images of the classes known: 75.0 %"
    assert _tested(known) == f"{said} (old classes 75.0 %, before this session 50.0 %)"
    both = SessionTest(8, 0.75, 0.5, 1.0, 0.5)
    more = "old classes 50.0 %, before this session 50.0 %, new classes 100.0 %"
    assert _tested(both) == f"{said} ({more})"
