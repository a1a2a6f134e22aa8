"""CLIP's own zero-shot classifier, which is refused: it compares images with class names, not with images."""

from typing import NoReturn

from visvm.bench.methods.method import Setup
from visvm.errors import EncoderError


def zero_shot_clip(setup: Setup) -> NoReturn:  # noqa: ARG001
    """Refuse, with the reason.

    Raises
    ------
    EncoderError
        Always.
    """
    raise EncoderError("zs-clip needs CLIP's text encoder, which no encoder of visvm has")
