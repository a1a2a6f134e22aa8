"""What a request may ask for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds that keep one client from taking the whole machine."""

    upload_bytes: int = 1 << 30  # of the body of one request
    files: int = 1000  # images in one request
    pixels: int = 89_000_000  # of one image
    label_length: int = 200  # characters
    waiting_images: int = 256  # for a prediction at once; requests beyond that get a 503
    waiting_jobs: int = 8  # changes at once
    body_seconds: float = 30.0  # the longest pause within a body
    predict_seconds: float = 60.0  # the longest wait for a prediction
