"""Commands whose help shows a flag by its name alone, without a type."""

from typing import Any

from typer.core import TyperCommand, TyperGroup


def _without_types(params: list[Any]) -> list[Any]:
    for each in params:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return params


class PlainCommand(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return its parameters, ``--help`` among them."""
        return _without_types(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """A command that has others."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return its parameters, ``--help`` among them."""
        return _without_types(super().get_params(ctx))
