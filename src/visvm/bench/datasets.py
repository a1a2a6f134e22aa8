"""The nine data sets of the paper: what is published about them, where they are officially obtained, how they must lie."""

from dataclasses import dataclass
from typing import Final

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
        """Whether so many images can be the published ones."""
        return abs(found - self.n) <= (_TOLERANCE * self.n if self.approximate else 0)


@dataclass(frozen=True)
class Split:
    """A published division into training and test images, of the benchmark's classes alone.

    Parameters
    ----------
    name : str
        Whose: "official", or "LAMDA", which stands for the files that the class-incremental papers
        of Nanjing share.
    train, test : Count
    lists : str
        The files of the archive that say which image belongs where; empty where the archive holds
        none, or is so divided.
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
        As recipes and the command line have it.
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


def _in_class_folders(
    name: str,
    title: str,
    n_classes: int,
    classes: str,
    splits: tuple[Split, ...],
    source: str,
    url: str,
    terms: str,
) -> DataSet:
    return DataSet(
        name=name,
        title=title,
        n_classes=n_classes,
        increment=n_classes // 10,
        half=n_classes // 2,
        classes=classes,
        splits=splits,
        folders=(name,),
        layout=f"{name}/{{train,test}}/CLASS/IMAGES",
        source=source,
        url=url,
        terms=terms,
    )


# Numbers that neither the data set's own pages nor the peers' logs confirm are approximate.
DATASETS: Final[dict[str, DataSet]] = {
    known.name: known
    for known in (
        DataSet(
            name="cifar100",
            title="CIFAR-100",
            n_classes=100,
            increment=10,
            half=50,
            classes="all, numbered by their fine labels",
            splits=(Split("official", Count(50000), Count(10000)),),
            folders=("cifar100/cifar-100-python", "cifar-100-python"),
            layout="cifar100/cifar-100-python/{train,test,meta}",
            source="Alex Krizhevsky's page at Toronto (CIFAR-100, python version)",
            url="https://www.cs.toronto.edu/~kriz/cifar.html",
            terms="none stated; the page asks to cite its report",
        ),
        _in_class_folders(
            "cub200",
            "CUB-200-2011",
            200,
            "all",
            (
                Split(
                    "official",
                    Count(5994),
                    Count(5794),
                    "images.txt and train_test_split.txt, where 1 is training",
                ),
                Split("LAMDA", Count(9430), Count(2358)),
            ),
            "the authors' page at Caltech (CUB-200-2011)",
            "https://www.vision.caltech.edu/datasets/cub_200_2011/",
            "≈ non-commercial research and education",
        ),
        _in_class_folders(
            "objectnet",
            "ObjectNet",
            200,
            "the first 200 of 313 by folder name",
            (Split("LAMDA", Count(26509, approximate=True), Count(6628, approximate=True)),),
            "the authors' page at MIT (ObjectNet)",
            "https://objectnet.dev",
            "CC BY 4.0 with a clause: never to tune a model's parameters",
        ),
        _in_class_folders(
            "imagenet-r",
            "ImageNet-R",
            200,
            "all, in folders named by WordNet number",
            (Split("LAMDA", Count(24000, approximate=True), Count(6000, approximate=True)),),
            "the authors' repository (ImageNet-R)",
            "https://github.com/hendrycks/imagenet-r",
            "MIT",
        ),
        _in_class_folders(
            "aircraft",
            "FGVC-Aircraft",
            100,
            "all 100 variants",
            (
                Split(
                    "official",
                    Count(6667),
                    Count(3333),
                    "images_variant_trainval.txt and images_variant_test.txt",
                ),
            ),
            "the authors' page at Oxford (FGVC-Aircraft)",
            "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/",
            "non-commercial research only",
        ),
        _in_class_folders(
            "cars",
            "Stanford Cars",
            100,
            "the first 100 of 196 by folder name",
            (Split("LAMDA", Count(4135, approximate=True), Count(4083)),),
            "the authors' page at Stanford (Cars), no longer online",
            "https://ai.stanford.edu/~jkrause/cars/car_dataset.html",
            "≈ non-commercial research",
        ),
        _in_class_folders(
            "food101",
            "Food-101",
            100,
            "the first 100 of 101 by folder name: all but waffles",
            (
                Split("official", Count(75000), Count(25000), "meta/train.txt and meta/test.txt"),
                Split("LAMDA", Count(79998, approximate=True), Count(20012, approximate=True)),
            ),
            "the authors' page at ETH Zurich (Food-101)",
            "https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101/",
            "scientific fair use; the photos are Foodspotting's",
        ),
        _in_class_folders(
            "sun397",
            "SUN397",
            300,
            "the first 300 of 397 by folder name",
            (
                Split(
                    "official, any of its ten",
                    Count(15000),
                    Count(15000),
                    "Training_01.txt and Testing_01.txt, and so on to 10",
                ),
                Split("LAMDA", Count(72870, approximate=True), Count(18179, approximate=True)),
            ),
            "the authors' page at Princeton (SUN397)",
            "https://vision.princeton.edu/projects/2010/SUN/",
            "≈ academic research",
        ),
        _in_class_folders(
            "ucf101",
            "UCF101",
            100,
            "the first 100 of 101 by folder name: all but YoYo",
            (Split("LAMDA", Count(10053, approximate=True), Count(2639)),),
            "the authors' page at UCF (UCF101); a frame of each video",
            "https://www.crcv.ucf.edu/data/UCF101.php",
            "≈ none stated",
        ),
    )
}
