"""The nine data sets of the paper: what ``datasets.toml`` says about them."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import msgspec

_TOLERANCE: Final = 0.01  # of a published number that is only known approximately


@dataclass(frozen=True)
class Count:
    """A published number of images; one that could not be verified is approximate.

    Examples
    --------
    >>> str(Count(5994)), str(Count(18179, approximate=True))
    ('5 994', '≈18 179')
    >>> Count(5994).admits(5993), Count(18179, approximate=True).admits(18100)
    (False, True)
    """

    n: int
    approximate: bool = False

    def __str__(self) -> str:
        return f"{'≈' if self.approximate else ''}{self.n:,}".replace(",", " ")

    def admits(self, found: int) -> bool:
        """Return whether so many images can be the published ones."""
        return abs(found - self.n) <= (_TOLERANCE * self.n if self.approximate else 0)


@dataclass(frozen=True)
class Split:
    """A published division into training and test images, of the benchmark's classes alone."""

    name: str  # "official", or "LAMDA" for the files that the papers of Nanjing share
    train: Count
    test: Count
    lists: str = ""  # files of the archive that divide it; empty where there are none


@dataclass(frozen=True)
class DataSet:
    """A data set of the benchmark."""

    name: str  # as in recipes and on the command line
    title: str  # for people
    n_classes: int  # of the benchmark
    increment: int  # classes a session
    half: int  # classes of the base session of the protocol that begins with half of them
    classes: str  # which these are; always the first of the sorted names of the class folders
    splits: tuple[Split, ...]
    folders: tuple[str, ...]  # where it is looked for below the data folder
    layout: str  # what must lie there
    source: str  # where it is officially obtained
    url: str
    terms: str  # its licence, in short

    @property
    def b0(self) -> str:
        """The protocol whose sessions are all of one size.

        Examples
        --------
        >>> DATASETS["cub200"].b0, DATASETS["cub200"].b_half
        ('B0 Inc20', 'B100 Inc20')
        """
        return f"B0 Inc{self.increment}"

    @property
    def b_half(self) -> str:
        """The protocol that begins with half of the classes."""
        return f"B{self.half} Inc{self.increment}"


def _read() -> dict[str, DataSet]:
    content = tomllib.loads(files("visvm.bench").joinpath("datasets.toml").read_text("utf-8"))
    for name, said in content.items():
        folders = {"folders": [name], "layout": f"{name}/{{train,test}}/CLASS/IMAGES"}
        sizes = {"increment": said["n_classes"] // 10, "half": said["n_classes"] // 2}
        content[name] = {"name": name, **sizes, **folders, **said}
    return msgspec.convert(content, dict[str, DataSet])


DATASETS: Final = _read()
"""By name, in the order of the paper."""
