"""Folders → images with labels: which folder of a path names the class."""

from collections.abc import Sequence
from pathlib import Path

from visvm.encoders.images import find_images, is_image_name
from visvm.encoders.sources import Source, expanded, is_uri, list_classes
from visvm.errors import InputError, shown
from visvm.model.formats import counted
from visvm.model.labels import some_of

SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation", "dev"}
"""Names of the halves of a data set."""


def read_folder(folder: str | Path, nested: bool | None = None) -> list[tuple[Source, str]]:
    """Return the images below a folder, or a URI, with the names of their classes.

    Parameters
    ----------
    folder : str or Path
    nested : bool, optional
        Where images lie in folders of folders: True names classes by the whole path below `folder`,
        joined with "/", False by its first folder. None refuses such a folder.
    """
    images: list[tuple[Source, tuple[str, ...]]]
    if isinstance(folder, str) and is_uri(folder):
        found = [image for files in list_classes(folder).values() for image in files]
        images = [(image, tuple(image.below.split("/")[:-1])) for image in found]
    else:
        images = _in_folder(expanded(folder))
    _check_depth(folder, list(dict.fromkeys(parents for _, parents in images)), nested)
    return [(image, "/".join(parents) if nested else parents[0]) for image, parents in images]


def _in_folder(folder: Path) -> list[tuple[Source, tuple[str, ...]]]:
    """Return the images below a folder of this machine, with the folders that they lie in."""
    try:
        children = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(
            f"The folder {shown(folder)} cannot be read: {error.strerror}. Correct its rights.",
            code="folder-unreadable",
        ) from error
    classes = [
        child for child in children if child.is_dir() and not child.name.startswith((".", "__"))
    ]
    loose = [child for child in children if child.is_file() and is_image_name(child)]
    if not classes:
        what = f"{counted(len(loose), 'image')} and no sub-folder" if loose else "nothing"
        raise InputError(
            f"{shown(folder)} has {what} in it. Sort the images into one sub-folder per class, "
            "named after it.",
            code="classes-missing",
        )
    if loose:
        raise InputError(
            f"{shown(loose[0])} lies beside the sub-folders. Move it into that of its class.",
            code="image-outside-class",
        )
    images: list[tuple[Source, tuple[str, ...]]] = []
    for child in classes:
        found = find_images(child)
        if not found:
            raise InputError(
                f"The folder {shown(child)} has no images. Add some, or remove the folder.",
                code="class-empty",
            )
        images += [(path, path.relative_to(folder).parts[:-1]) for path in found]
    return images


def _check_depth(
    folder: str | Path, parents: Sequence[tuple[str, ...]], nested: bool | None
) -> None:
    """Refuse folders of which nobody said what names the classes, and data sets given whole."""
    if nested is False:
        return
    first = list(dict.fromkeys(each[0] for each in parents))
    deep = any(len(each) > 1 for each in parents)
    if (deep or len(first) > 1) and {name.lower() for name in first} <= SPLITS:
        train = next((name for name in first if name.lower().startswith("train")), first[0])
        others = [name for name in first if name != train]
        test = f" --test {_below(folder, others[0])}" if others else ""
        raise InputError(
            f"{shown(folder)} has the parts of a data set in it ({some_of(first)}), not classes. "
            f"Give {_below(folder, train)}{test}; if they are classes, say --top-level "
            "(nested=False).",
            code="folder-is-split",
        )
    if deep and nested is None:
        whole = ["/".join(each) for each in parents]
        raise InputError(
            f"Images lie more than one folder deep in {shown(folder)}. Say --top-level "
            f"(nested=False) if the classes are {some_of(first)}, or --nested (nested=True) if "
            f"they are {some_of(whole)}.",
            code="folder-nested",
        )


def _below(folder: str | Path, name: str) -> str:
    return shown(f"{str(folder).rstrip('/')}/{name}")
