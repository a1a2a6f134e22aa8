"""Which runs make a table or a figure of the paper: one small TOML file each, in ``recipes/``, or a file of one's own."""

import dataclasses
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from visvm.errors import InputError

SPLITS = ("test", "validation")


@dataclass(frozen=True)
class Recipe:
    """What to run: every combination of what is listed.

    Parameters
    ----------
    name : str
    title : str
        What it is for.
    datasets : list of str
        Names, or folders of one's own.
    protocols : list of str
        "B0" and "B-half" stand for the data set's own two; or such as "B50 Inc10", "sessions
        20,10,5".
    methods : list of str
    paper : str
        Which table or figure of the paper it is, if any.
    encoders : list of str
    transform : str
    class_order_seeds : list of int
    feature_seeds : list of int
        Of the methods' own random numbers.
    options : dict
        Given to every method that has an option of this name.
    vary : dict of list
        Options that are varied one at a time, the others staying as they are; given likewise.
    split : str
        "test", or "validation" for a 4:1 split of the training images.
    train_per_class, test_per_class : int or None
        Use only the first so many images of every class.
    """

    name: str
    title: str
    datasets: list[str]
    methods: list[str]
    paper: str = ""
    protocols: list[str] = field(default_factory=lambda: ["B0"])
    encoders: list[str] = field(default_factory=lambda: ["dinov2-s14"])
    transform: str = "squash"
    class_order_seeds: list[int] = field(default_factory=lambda: [1993])
    feature_seeds: list[int] = field(default_factory=lambda: [0])
    options: dict[str, Any] = field(default_factory=dict)
    vary: dict[str, list[Any]] = field(default_factory=dict)
    split: str = "test"
    train_per_class: int | None = None
    test_per_class: int | None = None

    def variants(self) -> list[dict[str, Any]]:
        """The options to run every method with.

        Examples
        --------
        >>> Recipe("r", "", [], [], options={"a": 1}, vary={"b": [2, 3]}).variants()
        [{'a': 1, 'b': 2}, {'a': 1, 'b': 3}]
        """
        varied = [
            {**self.options, name: value} for name, values in self.vary.items() for value in values
        ]
        return varied or [self.options]

    def with_changes(self, **changes: Any) -> "Recipe":
        """The same recipe with what was given in place of what it says; None changes nothing."""
        return dataclasses.replace(
            self, **{name: value for name, value in changes.items() if value is not None}
        )


def built_in() -> dict[str, Recipe]:
    """The recipes that come with visvm, by name."""
    every = files("visvm.bench").joinpath("recipes").iterdir()
    found = sorted(
        (file for file in every if file.name.endswith(".toml")), key=lambda file: file.name
    )
    names = [file.name.removesuffix(".toml") for file in found]
    return {
        name: _parse(file.read_text("utf-8"), name) for name, file in zip(names, found, strict=True)
    }


def read_recipe(name: str) -> Recipe:
    """A recipe by its name, or from a TOML file of one's own."""
    if name.endswith(".toml"):
        path = Path(name).expanduser()
        try:
            return _parse(path.read_text("utf-8"), path.stem)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"{path} must be a recipe that can be read; it cannot ({error}): correct the path"
            ) from error
    known = built_in()
    if name not in known:
        raise InputError(
            f"a recipe must be one of {', '.join(known)}, or a .toml file; got {name!r}: correct it"
        )
    return known[name]


def _parse(text: str, name: str) -> Recipe:
    try:
        said: Mapping[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"the recipe {name} must be valid TOML; it is not ({error}): correct it"
        ) from error
    for key, value in said.items():
        if key not in _CHECKS:
            raise InputError(
                f"a recipe must have fields among {', '.join(_CHECKS)}; {name} has {key!r}: remove it"
            )
        what, fits = _CHECKS[key]
        if not fits(value):
            raise InputError(
                f"{key} of the recipe {name} must be {what}; got {value!r}: correct it"
            )
    missing = [key for key in ("title", "datasets", "methods") if key not in said]
    if missing:
        raise InputError(f"a recipe must say its {missing[0]}; {name} does not: add it")
    return Recipe(name=name, **said)


def is_seed(number: int) -> bool:
    """Whether numpy takes a number as a seed."""
    return 0 <= number < 2**32


def _is_plain(value: Any) -> bool:
    """Whether JSON has it: no dates, no tables."""
    return (
        all(map(_is_plain, value))
        if isinstance(value, list)
        else isinstance(value, str | int | float)
    )


def _is_plain_list(value: Any) -> bool:
    return isinstance(value, list) and value != [] and _is_plain(value)


def _is_list_of(kind: type) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, list) and value != [] and all(type(item) is kind for item in value)
    )


_TEXT = "text", lambda value: isinstance(value, str)
_TEXTS = "a list of texts", _is_list_of(str)
_SEEDS = (
    "a list of whole numbers from 0 to 4294967295",
    lambda value: _is_list_of(int)(value) and all(map(is_seed, value)),
)
_COUNT = "a whole number above 0", lambda value: type(value) is int and value > 0
_CHECKS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("title", "paper", "transform"), _TEXT),
    **dict.fromkeys(("datasets", "protocols", "methods", "encoders"), _TEXTS),
    **dict.fromkeys(("class_order_seeds", "feature_seeds"), _SEEDS),
    "options": (
        "a table of numbers, texts and lists",
        lambda value: isinstance(value, dict) and _is_plain([*value.values()]),
    ),
    "vary": (
        "a table of lists of numbers and texts",
        lambda value: isinstance(value, dict) and all(map(_is_plain_list, value.values())),
    ),
    "split": (f"one of {', '.join(SPLITS)}", lambda value: value in SPLITS),
    **dict.fromkeys(("train_per_class", "test_per_class"), _COUNT),
}
