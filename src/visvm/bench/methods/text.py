"""Images and class names in the joint space: what the methods that lean on text share."""

from collections.abc import Container
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visvm.bench.methods.method import Setup
from visvm.bench.texts import ClassTexts
from visvm.encoders.encoder import LayerFeatures
from visvm.encoders.joint import Tail
from visvm.encoders.texts import unit
from visvm.errors import EncoderError
from visvm.head.products import Array


def project_final(features: LayerFeatures, setup: Setup) -> NDArray[Any]:
    """Return what the encoder itself puts out, f, (n, p), of layer features."""
    return setup.project(features[:, -setup.layer_dims[-1] :])


def joint(features: LayerFeatures, setup: Setup) -> Array:
    """Return the same in float64 and of unit length, (n, p)."""
    return unit(project_final(features, setup).astype(np.float64))


def texts_of(setup: Setup) -> ClassTexts:
    """Return the texts, of a method that was promised some."""
    assert setup.texts is not None, "a method that needs text is set up with it"
    return setup.texts


def published_setting(setup: Setup, settings: Container[str], other: str) -> str:
    """Return the setting of a data set and protocol, of the data set, or that of all others."""
    own = (setup.setting, setup.setting.removesuffix("-half"), other)
    return next(name for name in own if name in settings)


def require_tail(setup: Setup, name: str) -> Tail:
    """Return the encoder's last norm and projection; refuse an encoder without."""
    if setup.tail is None:
        raise EncoderError(
            f"{name} needs the last norm and the projection of a CLIP image tower, which this "
            "encoder does not have. Give a CLIP encoder.",
            code="tail-missing",
        )
    return setup.tail
