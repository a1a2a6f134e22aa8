"""A process that decodes images for the service, and may be killed at any time.

    python -m visvm.service.decoder SETTINGS

Reads images from its standard input and writes what they became to its standard output, each with
its length before it. It ends with its input; what it may use is limited before it sees any image.
"""

import json
import math
import os
import struct
import sys
from dataclasses import asdict, dataclass
from typing import IO

from visvm.encoders.encoder import Preprocessing
from visvm.encoders.images import decode
from visvm.encoders.transform import Transform
from visvm.errors import ImageError

LENGTH = struct.Struct("<cQ")  # kind and length of what follows
READY, IMAGE, PIXELS, REFUSED = b"r", b"i", b"p", b"e"


@dataclass(frozen=True)
class Settings:
    """What all images of a process have in common."""

    transform: Transform
    max_pixels: int
    seconds: float  # of the processor, for one image
    max_bytes: int  # of memory

    def to_json(self) -> str:
        """Return the settings as an argument of a command."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        """Return the settings that an argument holds."""
        values = json.loads(text)
        given = values.pop("transform")
        preprocessing = Preprocessing(**given["preprocessing"])
        return cls(Transform(given["kind"], preprocessing), **values)


def send(file: IO[bytes], kind: bytes, content: bytes | memoryview = b"") -> None:
    """Write one message."""
    file.write(LENGTH.pack(kind, len(content)))
    file.write(content)
    file.flush()


def receive(file: IO[bytes]) -> tuple[bytes, bytes] | None:
    """Return kind and content of the next message, or None at the end of the file."""
    head = file.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    kind, length = LENGTH.unpack(head)
    content = file.read(length)
    return None if len(content) < length else (kind, content)


def _limit(settings: Settings) -> None:
    """Bound memory, and the time from now on; systems without such limits have none."""
    try:
        import resource
    except ModuleNotFoundError:
        return
    used = sum(os.times()[:2])
    for what, most in (
        (resource.RLIMIT_CPU, math.ceil(used + settings.seconds)),
        (resource.RLIMIT_AS, settings.max_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (most if hard < 0 else min(most, hard), hard))


def main() -> None:
    """Decode images until there are no more."""
    settings = Settings.from_json(sys.argv[1])
    images, answers = sys.stdin.buffer, sys.stdout.buffer
    send(answers, READY)
    while (message := receive(images)) is not None:
        _limit(settings)
        try:
            pixels = decode(message[1], settings.transform, settings.max_pixels)
        except ImageError as error:
            send(answers, REFUSED, json.dumps([str(error), error.code]).encode())
        else:
            send(answers, PIXELS, pixels.data.cast("B"))
        del message


if __name__ == "__main__":
    main()
