"""CLIP's own tokenizer, for checkpoints that come without one: a file in the wheel of open_clip.

The wheel is fetched and checked like weights; it is neither installed nor imported.
"""

import gzip
from pathlib import Path
from typing import Any, Final

from visvm.encoders.catalog import WheelFile
from visvm.encoders.tower import import_torch
from visvm.encoders.weights import cache_folder, fetch_file
from visvm.progress import Progress

BPE: Final = WheelFile(
    name="clip-bpe",
    project="open-clip-torch",
    version="3.3.0",
    member="open_clip/bpe_simple_vocab_16e6.txt.gz",
    n_bytes=1_356_917,
    sha256="924691ac288e54409236115652ad4aa250f48203de50a9e4722a6ecd48d6804a",
)
_N_MERGES = 49152 - 256 - 2
START, END = "<|startoftext|>", "<|endoftext|>"


def fetch_bpe(progress: Progress) -> Path:
    """Return the file of merges, checked; fetch it where it is missing or altered."""
    return fetch_file(BPE, cache_folder() / "weights" / "clip-bpe.txt.gz", progress)


def clip_tokenizer(path: Path) -> Any:
    """Make CLIP's tokenizer of its file of merges."""
    _, transformers = import_torch()
    lines = gzip.decompress(path.read_bytes()).decode("utf-8").split("\n")
    merges = [tuple(line.split()) for line in lines[1 : _N_MERGES + 1]]
    letters = _byte_letters()
    words = [*letters, *(f"{letter}</w>" for letter in letters), *map("".join, merges), START, END]
    vocabulary = {word: number for number, word in enumerate(words)}
    return transformers.CLIPTokenizer(vocab=vocabulary, merges=merges)


def _byte_letters() -> list[str]:
    """Return the letter that stands for each byte: printable ones first, as themselves."""
    ranges = (("!", "~"), ("¡", "¬"), ("®", "ÿ"))
    shown = [code for first, last in ranges for code in range(ord(first), ord(last) + 1)]
    return [*map(chr, shown), *(chr(256 + number) for number in range(256 - len(shown)))]
