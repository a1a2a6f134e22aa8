"""Commands for advice: ``suggest`` and ``explain``; they leave the model as it is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visvm.cli.options import (
    Force,
    Json,
    ModelPath,
    NoCache,
    Quiet,
    SkipUnreadable,
    Where,
    home,
    require_absent,
    require_unread,
)
from visvm.errors import InputError, shown

if TYPE_CHECKING:
    from visvm.model.advice import Explanation, Suggestion


def suggest(
    model: ModelPath,
    images: Annotated[
        list[str],
        typer.Argument(
            help="Photos without labels: folders, images, or patterns such as 'new/*.jpg'.",
            metavar="FOLDER…",
        ),
    ],
    n: Annotated[int, typer.Option("-n", min=1, help="How many photos at most.")] = 20,
    skip_unreadable: SkipUnreadable = False,
    encoder: Where = None,
    no_cache: NoCache = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say which photos to label next, so that the model learns most from a few labels."""
    from visvm.cli.ask import expand_images
    from visvm.cli.terminal import answer, out, progress_bars, table
    from visvm.image_classifier import ImageClassifier

    paths = expand_images(images)
    classifier = ImageClassifier.load(model, encoder=encoder, cache=not no_cache)
    with progress_bars(quiet) as progress:
        found = classifier.suggest(paths, n, skip_unreadable=skip_unreadable, progress=progress)

    def show() -> None:
        rows = [(each.path, _looks_like(each)) for each in found]
        columns = ("photo", "looks like, so far")
        out().print(table(f"Label these {len(found)} of {len(paths)} photos next", columns, rows))

    answer(found, show, as_json=as_json)


def explain(
    model: ModelPath,
    image: Annotated[str, typer.Argument(help="The image.", metavar="IMAGE")],
    label: Annotated[
        str | None,
        typer.Option(help="The class to explain.", show_default="the likeliest one"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The PNG file to write.",
            show_default="NAME-explained.png, in this folder",
            callback=home,
        ),
    ] = None,
    force: Force = False,
    encoder: Where = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw which parts of an image an answer rests on, by hiding one after another."""
    from visvm.cli.terminal import answer, progress_bars
    from visvm.encoders.files import replacing
    from visvm.model.advice import ImageAdvisor
    from visvm.model.labels import as_number

    if Path(image).is_dir():
        raise InputError(f"{shown(image)} is a folder. Give one image.", code="image-kind")
    output = output or Path(f"{Path(image).stem}-explained.png")
    _check_picture(output, force)
    require_unread(output, image, model, encoder)
    advisor = ImageAdvisor.load(model, encoder=encoder, for_prediction=True)
    wanted = as_number(label) if label is not None and advisor.numbers else label
    with progress_bars(quiet) as progress:
        found = advisor.explain(image, wanted, progress=progress)
    with replacing(output) as file:
        file.write(found.picture)
    facts: dict[str, Any] = {"path": found.path, "label": found.label, "score": found.score}
    facts["unknown"] = found.unknown
    said = f"{found.path}: what {_looks_like(found)} rests on: {output}"
    answer(
        {**facts, "heat": found.heat.tolist(), "picture": output},
        said,
        as_json=as_json,
        quiet=quiet,
    )


def _looks_like(found: "Suggestion | Explanation") -> str:
    """Say what a photo looks like, in the words of ``predict``."""
    from visvm.model.formats import percent

    best = f"{found.label} {percent(found.score)}"
    return f"none of these (closest: {best})" if found.unknown else best


def _check_picture(output: Path, force: bool) -> None:
    """Refuse a file that the picture cannot be written to, before work is spent on it."""
    if output.suffix.lower() != ".png":
        fact = f"{shown(output.name)!r} is not the name of a PNG file."
        raise InputError(f"{fact} Let it end in .png.", code="picture-kind-unknown")
    if not output.absolute().parent.is_dir():
        fact = f"The folder of {shown(output)} does not exist."
        raise InputError(f"{fact} Make it, or choose another one.", code="picture-folder-missing")
    require_absent(output, force)
