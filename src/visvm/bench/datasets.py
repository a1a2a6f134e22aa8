"""The nine data sets of the paper: what is published about them, and how they must be laid out."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

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
    """A published division into training and test images, of the benchmark's classes alone.

    Parameters
    ----------
    name : str
        Whose: "official", or "LAMDA" for the files that the class-incremental papers of Nanjing
        share.
    train, test : Count
    lists : str
        The files of the archive that say which image belongs where; empty where the archive has
        none, or is already divided.
    """

    name: str
    train: Count
    test: Count
    lists: str = ""


@dataclass(frozen=True)
class DataSet:
    """A data set of the benchmark.

    Parameters
    ----------
    name : str
        As in recipes and on the command line.
    title : str
        For people.
    n_classes : int
        Of the benchmark.
    increment, half : int
        Classes a session, and classes of the base session of the protocol that begins with half of
        them.
    classes : str
        Which classes these are; always the first of the sorted names of the class folders.
    splits : tuple of Split
    folders : tuple of str
        Where it is looked for below the data folder.
    layout : str
        What must lie there.
    source, url : str
        Where it is officially obtained.
    terms : str
        Its licence, in short.
    """

    name: str
    title: str
    n_classes: int
    increment: int
    half: int
    classes: str
    splits: tuple[Split, ...]
    folders: tuple[str, ...]
    layout: str
    source: str
    url: str
    terms: str

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


def _data_set(name: str, title: str, n_classes: int, **others: Any) -> DataSet:
    """Fill in what all of them share, and the layout in class folders."""
    layout = {"folders": (name,), "layout": f"{name}/{{train,test}}/CLASS/IMAGES"}
    increment, half = n_classes // 10, n_classes // 2
    return DataSet(name, title, n_classes, increment, half, **{**layout, **others})


# Numbers that neither the data set's own pages nor the peers' logs confirm are approximate.
_about = partial(Count, approximate=True)

_KNOWN = (
    _data_set(
        "cifar100",
        "CIFAR-100",
        100,
        classes="all, numbered by their fine labels",
        splits=(Split("official", Count(50000), Count(10000)),),
        folders=("cifar100/cifar-100-python", "cifar-100-python"),
        layout="cifar100/cifar-100-python/{train,test,meta}",
        source="Alex Krizhevsky's page at Toronto (CIFAR-100, python version)",
        url="https://www.cs.toronto.edu/~kriz/cifar.html",
        terms="none stated; the page asks to cite its report",
    ),
    _data_set(
        "cub200",
        "CUB-200-2011",
        200,
        classes="all",
        splits=(
            Split(
                "official",
                Count(5994),
                Count(5794),
                "images.txt and train_test_split.txt, where 1 is training",
            ),
            Split("LAMDA", Count(9430), Count(2358)),
        ),
        source="the authors' page at Caltech (CUB-200-2011)",
        url="https://www.vision.caltech.edu/datasets/cub_200_2011/",
        terms="≈ non-commercial research and education",
    ),
    _data_set(
        "objectnet",
        "ObjectNet",
        200,
        classes="the first 200 of 313 by folder name",
        splits=(Split("LAMDA", _about(26509), _about(6628)),),
        source="the authors' page at MIT (ObjectNet)",
        url="https://objectnet.dev",
        terms="CC BY 4.0 with a clause: never to tune a model's parameters",
    ),
    _data_set(
        "imagenet-r",
        "ImageNet-R",
        200,
        classes="all, in folders named by WordNet number",
        splits=(Split("LAMDA", _about(24000), _about(6000)),),
        source="the authors' repository (ImageNet-R)",
        url="https://github.com/hendrycks/imagenet-r",
        terms="MIT",
    ),
    _data_set(
        "aircraft",
        "FGVC-Aircraft",
        100,
        classes="all 100 variants",
        splits=(
            Split(
                "official",
                Count(6667),
                Count(3333),
                "images_variant_trainval.txt and images_variant_test.txt",
            ),
        ),
        source="the authors' page at Oxford (FGVC-Aircraft)",
        url="https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/",
        terms="non-commercial research only",
    ),
    _data_set(
        "cars",
        "Stanford Cars",
        100,
        classes="the first 100 of 196 by folder name",
        splits=(Split("LAMDA", _about(4135), Count(4083)),),
        source="the authors' page at Stanford (Cars), no longer online",
        url="https://ai.stanford.edu/~jkrause/cars/car_dataset.html",
        terms="≈ non-commercial research",
    ),
    _data_set(
        "food101",
        "Food-101",
        100,
        classes="the first 100 of 101 by folder name: all but waffles",
        splits=(
            Split("official", Count(75000), Count(25000), "meta/train.txt and meta/test.txt"),
            Split("LAMDA", _about(79998), _about(20012)),
        ),
        source="the authors' page at ETH Zurich (Food-101)",
        url="https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101/",
        terms="scientific fair use; the photos are Foodspotting's",
    ),
    _data_set(
        "sun397",
        "SUN397",
        300,
        classes="the first 300 of 397 by folder name",
        splits=(
            Split(
                "official, any of its ten",
                Count(15000),
                Count(15000),
                "Training_01.txt and Testing_01.txt, and so on to 10",
            ),
            Split("LAMDA", _about(72870), _about(18179)),
        ),
        source="the authors' page at Princeton (SUN397)",
        url="https://vision.princeton.edu/projects/2010/SUN/",
        terms="≈ academic research",
    ),
    _data_set(
        "ucf101",
        "UCF101",
        100,
        classes="the first 100 of 101 by folder name: all but YoYo",
        splits=(Split("LAMDA", _about(10053), Count(2639)),),
        source="the authors' page at UCF (UCF101); a frame of each video",
        url="https://www.crcv.ucf.edu/data/UCF101.php",
        terms="≈ none stated",
    ),
)

DATASETS: Final = {known.name: known for known in _KNOWN}
"""By name, in the order of the paper."""
