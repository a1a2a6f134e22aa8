"""Sentences about a session."""

from visvm.cli.reporting import _chosen
from visvm.model.results import TransformChoice


def test_the_transform_is_told_with_its_reason():
    few = _chosen(TransformChoice("squash"))
    assert few == "transform squash, the default: too few photos or classes to try others"
    tried = {"crop": 0.825, "squash": 0.8, "pad": 0.75}
    default = _chosen(TransformChoice("squash", 40, tried))
    assert default.startswith("transform squash, as no other is clearly ahead: of 40 photos")
    assert default.endswith("crop 82.5 %, squash 80.0 %, pad 75.0 % right")
    assert "crop, the best: of 40" in _chosen(TransformChoice("crop", 40, tried))
