"""The numbers the paper prints, in percent, to be put beside ours where they are comparable."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from importlib.resources import files
from typing import Any

from visvm.bench.methods import METHODS

_MAIN_ENCODER = "clip-b16-laion400m"


@dataclass(frozen=True)
class Numbers:
    """What is printed of one method in one setting; None where nothing is."""

    average: float | None = None  # Ā
    final: float | None = None  # A_B
    forgetting: float | None = None  # F_B
    average_seeds: tuple[float, float] | None = None  # mean and deviation over feature seeds
    final_seeds: tuple[float, float] | None = None


@dataclass(frozen=True)
class Published:
    """The content of ``published.toml``, which says what its parts mean."""

    content: Mapping[str, Any]

    @property
    def datasets(self) -> list[str]:
        """Names of the data sets, in the paper's order."""
        return list(self.content["datasets"])

    @property
    def encoders(self) -> list[str]:
        """The encoders as the paper calls them."""
        return [known["printed"] for known in self.content["encoders"].values()]

    @property
    def transform(self) -> str:
        """How images were brought to the encoder's size."""
        return str(self.content["transform"])

    def encoder(self, name: str) -> str | None:
        """Return which of the paper's encoders this is, if any.

        Examples
        --------
        >>> read_published().encoder("~/weights/vit_b_16-laion400m_e32-55e67d44.pt")
        'clip-b16-laion400m'
        >>> read_published().encoder("facebook/dinov2-base"), read_published().encoder("dinov2-s14")
        ('dinov2-b14', None)
        """
        *folders, last = re.split(r"[/\\]", name.lower().rstrip("/\\"))
        # the name all checkpoints of the hub have
        last = folders[-1] if folders and last.startswith("open_clip_") else last
        for key, known in self.content["encoders"].items():
            if any(fnmatch(last, pattern) for pattern in known["names"]):
                return str(key)
        return None

    def numbers(self, encoder: str | None, dataset: str, protocol: str) -> dict[str, Numbers]:
        """Return all that is printed of a setting, by the paper's methods.

        The encoder is one of the paper's, as ``encoder`` gives it; None gives nothing.

        Examples
        --------
        >>> read_published().numbers("clip-b16-laion400m", "aircraft", "B0 Inc10")["acil"].final
        56.68
        """

        def part(*path: str) -> Mapping[str, Any]:
            found = self.content
            for key in (*path, dataset, protocol):
                found = found.get(key, {})
            return found

        if encoder is None:
            return {}
        main = encoder == _MAIN_ENCODER
        accuracies = {**part("text"), **part("benchmark")} if main else part("backbones", encoder)
        forgetting, seeds = (part("forgetting"), part("random_features")) if main else ({}, {})
        return {
            method: _numbers(accuracies.get(method), forgetting.get(method), seeds.get(method))
            for method in self.methods
            if method in accuracies or method in forgetting or method in seeds
        }

    @property
    def methods(self) -> list[str]:
        """All methods of which something is printed."""
        return list(self.content["methods"])

    def row_methods(self, method: str) -> list[str]:
        """Return the methods of results.jsonl beside which the paper's method belongs."""
        return [entry.name for entry in METHODS.values() if entry.published == method]

    def printed(self, method: str) -> str:
        """Return a method's name in the paper."""
        return str(self.content["methods"][method]["printed"])

    def note(self, method: str) -> str | None:
        """Return what must be said where a method's number is put beside ours."""
        note: str | None = self.content["methods"][method].get("note")
        return note

    def test_images(self, dataset: str) -> int:
        """Return how many test images the published numbers are about."""
        return int(self.content["datasets"][dataset]["test_images"])

    @property
    def overhead(self) -> Mapping[str, Any]:
        """Time and memory of one setting on the authors' machine."""
        overhead: Mapping[str, Any] = self.content["overhead"]
        return overhead


@cache
def read_published() -> Published:
    """Read ``published.toml``."""
    return Published(
        tomllib.loads(files("visvm.bench.report").joinpath("published.toml").read_text("utf-8"))
    )


def _numbers(accuracies: Any, forgetting: float | None, seeds: Any) -> Numbers:
    averages, finals = (seeds["average"], seeds["final"]) if seeds else ([None], [None])
    average, final = accuracies or (averages[0], finals[0])
    pairs = [tuple(each) if len(averages) == 2 else None for each in (averages, finals)]
    return Numbers(average, final, forgetting, *pairs)
