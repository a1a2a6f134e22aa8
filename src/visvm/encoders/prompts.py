"""Class names and prompts → the texts that a tower is given."""

import re
import tomllib
from importlib.resources import files
from itertools import product
from typing import Any, Final

from visvm.errors import InputError


def _read() -> dict[str, tuple[str, ...]]:
    text = files("visvm.encoders").joinpath("prompts.toml").read_text("utf-8")
    said: dict[str, Any] = tomllib.loads(text)
    return {name: tuple(_every(prompts)) for name, prompts in said.items()}


def _every(prompts: Any) -> list[str]:
    """Return the prompts of a list, or every combination of a table's."""
    if isinstance(prompts, list):
        return prompts
    parts = {name: values for name, values in prompts.items() if name != "prompt"}
    combined = (dict(zip(parts, values, strict=True)) for values in product(*parts.values()))
    return [prompts["prompt"].format(**values) for values in combined]


PROMPTS: Final = _read()
"""By data set.

Examples
--------
>>> PROMPTS["cub200"], len(PROMPTS["cifar100"]), len(PROMPTS["ucf101"])
(('a photo of a {}, a type of bird.',), 18, 48)
"""


def chosen_prompts(given: list[str]) -> tuple[str, ...]:
    """Return the prompts that a data set's name means, or those given.

    Examples
    --------
    >>> chosen_prompts(["rapf"]), chosen_prompts(["a {}", "my {}"])
    (('a good photo of a {}.',), ('a {}', 'my {}'))
    """
    if len(given) == 1 and given[0] in PROMPTS:
        return PROMPTS[given[0]]
    for prompt in given:
        if prompt.count("{}") != 1 or prompt.replace("{}", "").count("{"):
            raise InputError(
                f"The prompt {prompt!r} must have one {{}}, where the name goes. Correct it, or "
                f"name one of {', '.join(PROMPTS)}.",
                code="prompt-invalid",
            )
    return tuple(given)


def spoken(name: str) -> str:
    """Return a class name as a sentence has it.

    Examples
    --------
    >>> spoken("001.Black_footed_Albatross"), spoken("707-320"), spoken("aquarium_fish")
    ('Black footed Albatross', '707-320', 'aquarium fish')
    """
    return " ".join(re.sub(r"^\d+\.(?=\D)", "", name).replace("_", " ").split())
