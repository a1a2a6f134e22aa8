"""Which runs make a table or a figure of the paper: TOML files, in ``recipes/`` or one's own."""

import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from visvm.encoders.files import MOST_OF_TEXT, read_file
from visvm.errors import InputError

MAX_SEED = 2**32 - 1  # the greatest that numpy takes

_Texts = Annotated[list[str], Meta(min_length=1)]
_Seeds = Annotated[list[Annotated[int, Meta(ge=0, le=MAX_SEED)]], Meta(min_length=1)]
_Count = Annotated[int, Meta(ge=1)]
_Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
_Value = bool | int | _Finite | str | list[bool | int | _Finite | str]


class Recipe(Struct, frozen=True):
    """What to run: every combination of what is listed."""

    name: str  # that of its file
    title: str  # what it is for
    datasets: _Texts  # names, or folders of one's own
    methods: _Texts
    paper: str = ""  # which table or figure of the paper it is, if any
    # "B0" and "B-half" are the data set's own two; or such as "B50 Inc10", "sessions 20,10,5"
    protocols: _Texts = msgspec.field(default_factory=lambda: ["B0"])
    encoders: _Texts = msgspec.field(default_factory=lambda: ["dinov2-s14"])
    transform: str = "squash"
    class_order_seeds: _Seeds = msgspec.field(default_factory=lambda: [1993])
    # of the methods' own random numbers
    feature_seeds: _Seeds = msgspec.field(default_factory=lambda: [0])
    options: dict[str, _Value] = {}  # given to every method that has an option of this name
    # Options that are varied one at a time, the others staying as they are; given likewise.
    vary: dict[str, Annotated[list[_Value], Meta(min_length=1)]] = {}
    text: str = ""  # a file of text features, for the methods that need them
    # beside the runs: the paper's diagnosis of class names
    analysis: Literal["", "diagnosis"] = ""
    split: Literal["test", "validation"] = "test"  # validation: of the training images, 4:1
    train_per_class: _Count | None = None  # use only the first so many images of every class
    test_per_class: _Count | None = None

    def variants(self) -> list[dict[str, Any]]:
        """Return the options to run every method with.

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
        """Return the recipe with what was given in place of what it says; None changes nothing."""
        return replace(
            self, **{name: value for name, value in changes.items() if value is not None}
        )


def built_in() -> dict[str, Recipe]:
    """Read the recipes that come with visvm, by name."""
    every = files("visvm.bench").joinpath("recipes").iterdir()
    found = {file.name.removesuffix(".toml"): file for file in every if file.name.endswith(".toml")}
    return {name: _parse(found[name].read_text("utf-8"), name) for name in sorted(found)}


def read_recipe(name: str) -> Recipe:
    """Read a recipe by its name, or from a TOML file of your own."""
    if name.endswith(".toml"):
        path = Path(name).expanduser()
        try:
            return _parse(read_file(path, MOST_OF_TEXT).decode(), path.stem)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"The recipe {path} cannot be read ({error}). Check the path.",
                code="recipe-unreadable",
            ) from error
    known = built_in()
    if name not in known:
        raise InputError(
            f"There is no recipe {name!r}. Give a .toml file, or one of {', '.join(known)}.",
            code="recipe-unknown",
        )
    return known[name]


def _parse(text: str, name: str) -> Recipe:
    try:
        said = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(
            f"The recipe {name} is not valid TOML ({error}). Correct it.", code="recipe-no-toml"
        ) from error
    _, *fields = Recipe.__struct_fields__
    if unknown := [key for key in said if key not in fields]:
        raise InputError(
            f"The recipe {name} has {unknown[0]!r}, which is not a field of recipes. "
            f"Their fields are {', '.join(fields)}.",
            code="recipe-field-unknown",
        )
    try:
        return msgspec.convert({**said, "name": name}, Recipe)
    except msgspec.ValidationError as error:
        raise InputError(
            f"The recipe {name} has a mistake: {error}. Correct it.", code="recipe-invalid"
        ) from error
