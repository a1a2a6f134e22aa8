"""What a request may ask for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds that keep one client from taking the whole machine."""

    upload_bytes: int = 1 << 30  # of the body of one request
    files: int = 1000  # images in one request
    pixels: int = 89_000_000  # of one image
    decode_seconds: float = 20.0  # for one image
    decode_bytes: int = 3 << 30  # of memory, for the process that decodes it
    label_length: int = 200  # characters
    waiting_images: int = 256  # for a prediction at once; requests beyond that get a 503
    waiting_jobs: int = 8  # changes at once
    connections: int = 512
    peer_connections: int = 384  # of one address; a proxy has one for all of its clients
    header_seconds: float = 10.0  # for the header of a request
    body_seconds: float = 30.0  # the longest pause within a body
    answer_seconds: float = 30.0  # the longest pause of a client that takes its answer
    stop_seconds: float = 8.0  # until the process ends, whatever it does
    predict_seconds: float = 60.0  # the longest wait for a prediction
