"""What a request may ask for."""

from dataclasses import dataclass

_MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Bounds that keep one client from taking the whole machine.

    Attributes
    ----------
    upload_bytes : int
        Of the body of one request.
    files : int
        Images in one request.
    pixels : int
        Of one image.
    label_length : int
        Characters of a label.
    waiting_images : int
        Images that may wait for a prediction at once; requests beyond that get a 503.
    waiting_jobs : int
        Changes that may wait at once.
    body_seconds : float
        The longest pause within a body.
    predict_seconds : float
        The longest wait for a prediction.
    """

    upload_bytes: int = 1024 * _MEGABYTE
    files: int = 1000
    pixels: int = 89_000_000
    label_length: int = 200
    waiting_images: int = 256
    waiting_jobs: int = 8
    body_seconds: float = 30.0
    predict_seconds: float = 60.0
