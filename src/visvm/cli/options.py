"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated, Any

import typer


def home(path: Path | None) -> Path | None:
    """Expand ``~``, which not every shell does."""
    from visvm.encoders.sources import expanded

    return None if path is None else expanded(path)


Json = Annotated[
    bool, typer.Option("--json", help="Write JSON to standard output, and nothing else.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars and no notes.")]
ModelPath = Annotated[
    Path, typer.Argument(help="The model file.", metavar="MODEL", show_default=False, callback=home)
]
Folder = Annotated[
    str,
    typer.Argument(
        help="A folder with one sub-folder per class, also as a URI (s3://…), or a CSV file of "
        "path,label.",
        metavar="FOLDER",
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Encode every image again and keep no features.")
]
SkipUnreadable = Annotated[
    bool, typer.Option("--skip-unreadable", help="Skip files that are not images.")
]
Where = Annotated[
    str | None,
    typer.Option("--encoder", help="Path of the model's encoder on this machine, if it has moved."),
]

# Of a new model
NewEncoder = Annotated[
    str | None,
    typer.Option(
        help="Encoder for a new model: a name of 'visvm weights list', an .onnx file or a "
        "transformers folder. For an existing one: path of its encoder on this machine.",
        show_default="dinov2-s14",
    ),
]
NewTransform = Annotated[
    str | None,
    typer.Option(
        help="For a new model: how photos become square, crop, squash or pad; auto tries them on "
        "the first session's photos.",
        show_default="auto",
    ),
]
NewComponents = Annotated[
    int | None,
    typer.Option(help="For a new model: width of the random kernel map.", show_default="15000"),
]
NewRidge = Annotated[
    float | None,
    typer.Option(help="For a new model: λ; chosen in the first session if not given."),
]
NewSeed = Annotated[
    int | None, typer.Option(help="For a new model: decides the random map.", show_default="0")
]


def given_options(
    encoder: str | None,
    transform: str | None,
    components: int | None,
    ridge: float | None,
    seed: int | None,
) -> dict[str, Any]:
    """Return the options of a new model that were given, by ``ImageClassifier``'s names."""
    named = {
        "encoder": encoder,
        "transform": transform,
        "n_components": components,
        "ridge": ridge,
        "random_state": seed,
    }
    return {name: value for name, value in named.items() if value is not None}
