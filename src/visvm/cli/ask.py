"""Commands that ask a model and leave it as it is: ``predict``, ``evaluate`` and ``info``."""

import csv
import glob
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visvm.cli.answers import show_answer
from visvm.cli.options import (
    Folder,
    Html,
    Json,
    ModelPath,
    Nested,
    NoCache,
    Quiet,
    SkipUnreadable,
    Unknown,
    Views,
    Where,
    require_drawing,
    require_no_photo,
    require_page,
    require_unread,
    tell_views,
)
from visvm.cli.watch import Camera, Duration, Every, Plot, Window, video_of, watch
from visvm.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from visvm.model.predictor import ImagePredictor


ImagesOrVideo = Annotated[
    list[str] | None,
    typer.Argument(
        help="Images, folders, or patterns such as 'photos/*.jpg'; or one video.",
        metavar="IMAGE…",
        show_default=False,
    ),
]
Top = Annotated[int | None, typer.Option(min=1, help="How many classes to name; 5 by default.")]
Raw = Annotated[
    bool, typer.Option("--raw", help="Give the head's scores instead of probabilities.")
]
Sure = Annotated[
    str,
    typer.Option(
        help="Where labels such as bird/owl and bird/wren form groups: answer with the group "
        "unless a class is at least this probable."
    ),
]
AsTable = Annotated[
    bool,
    typer.Option(
        "--csv", help="Write a table of path,label,score,known,unknown to standard output."
    ),
]
Confusions = Annotated[
    Path | None,
    typer.Option(
        "--plot", help="Draw accuracy by class and confusions to this PNG, PDF or SVG file."
    ),
]
Wrong = Annotated[bool, typer.Option("--wrong", help="List the photos that were answered wrongly.")]


def predict(
    model: ModelPath,
    images: ImagesOrVideo = None,
    top: Top = None,
    raw: Raw = False,
    unknown: Unknown = "5%",
    sure: Sure = "60%",
    views: Views = "one",
    every: Every = None,
    window: Window = None,
    camera: Camera = None,
    duration: Duration = None,
    plot: Plot = None,
    encoder: Where = None,
    no_cache: NoCache = False,
    as_csv: AsTable = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say what images show: the likeliest class of each, with its probability."""
    from visvm.encoders.transform import check_views
    from visvm.model.predictor import ImagePredictor

    check_views(views)
    options = {"every": every, "window": window, "duration": duration, "plot": plot}
    timing = {name: value for name, value in options.items() if value is not None}
    video = video_of(images or [], camera, timing)
    _check_table(as_csv, as_json, top, video)
    rate, share = rate_of(unknown), _share(sure, "--sure", code="sure-share")
    paths = expand_images(images or []) if video is None else []
    predictor = ImagePredictor.load(model, encoder=encoder, cache=not no_cache, for_prediction=True)
    tell_views(views, quiet)
    how: Any = {"top": top or 5, "raw": raw, "unknown": rate, "sure": share, "views": views}
    if video is None:
        _answer_photos(predictor, paths, how, as_csv=as_csv, as_json=as_json, quiet=quiet)
    else:
        watch(predictor, video, timing, how, as_json=as_json)


def _check_table(as_csv: bool, as_json: bool, top: int | None, video: object) -> None:
    """Refuse what does not go with a table."""
    if as_csv and as_json:
        advice = "--csv and --json were both given. Leave one of them out."
        raise InputError(advice, code="option-csv-or-json")
    if as_csv and top is not None:
        advice = "--csv gives one class an image, and --top was given. Leave one of them out."
        raise InputError(advice, code="option-csv-or-top")
    if as_csv and video is not None:
        advice = "--csv is for photos, and a video was given. Use --json."
        raise InputError(advice, code="option-csv-or-video")


def _answer_photos(
    predictor: "ImagePredictor",
    paths: list[Path],
    how: dict[str, Any],
    *,
    as_csv: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show what each photo shows; refuse in the end those that cannot be read."""
    from visvm.cli.terminal import out, progress_bars
    from visvm.encoders.pipeline import Unreadable, refuse_unreadable

    unreadable = []
    if as_csv:
        _write_row("path", "label", "score", "known", "unknown")
    # Lines that appear one by one are progress enough; a bar between them would tear them.
    with progress_bars(quiet, bars=not out().is_terminal) as progress:
        for outcome in predictor.predict_stream(paths, **how, progress=progress):
            if isinstance(outcome, Unreadable):
                unreadable.append(outcome)
            elif as_csv:
                known = "" if outcome.known is None else outcome.known
                rest = outcome.score, known, int(outcome.unknown)
                _write_row(outcome.path, outcome.label, *rest)
            else:
                show_answer(outcome, raw=how["raw"], as_json=as_json)
    refuse_unreadable(unreadable, "")


def _write_row(*cells: object) -> None:
    """Write a row of a table, in which no text is a formula; escaped on a terminal."""
    from visvm.errors import escaped
    from visvm.model.formats import as_cell

    texts = [as_cell(each) if isinstance(each, str) else each for each in cells]
    if sys.stdout.isatty():
        texts = [escaped(each) if isinstance(each, str) else each for each in texts]
    csv.writer(sys.stdout, lineterminator="\n").writerow(texts)


def rate_of(text: str) -> float | None:
    """Return the share that ``--unknown`` gives, such as 5%; None where it is off."""
    if text == "off":
        return None
    return _share(text, "--unknown", ", or off", code="unknown-share")


def _share(text: str, option: str, otherwise: str = "", *, code: str) -> float:
    """Return the share that an option gives."""
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not (text.endswith("%") and 0.0 < share < 1.0):
        raise InputError(f"{option} is {text!r}. Give a share such as 5%{otherwise}.", code=code)
    return share


def expand_images(images: list[str]) -> list[Path]:
    """Return the files meant by files, folders and patterns."""
    from visvm.encoders.images import find_images
    from visvm.encoders.sources import expanded

    paths: list[Path] = []
    for given in images:
        path = expanded(given)
        if path.is_dir():
            found = find_images(path)
        elif path.exists() or not glob.has_magic(given):
            found = [path]
        else:
            matches = map(Path, glob.glob(str(path), recursive=True))
            found = sorted(match for match in matches if match.is_file())
        if not found:
            fact = f"There are no images at {given}."
            raise InputError(f"{fact} Correct the path or the pattern.", code="images-missing")
        paths += found
    return paths


def evaluate(
    model: ModelPath,
    folder: Folder,
    plot: Confusions = None,
    wrong: Wrong = False,
    html: Html = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the page if it exists.")] = False,
    nested: Nested = None,
    skip_unreadable: SkipUnreadable = False,
    views: Views = "one",
    encoder: Where = None,
    no_cache: NoCache = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure accuracy: overall, by class, which classes are taken for which, in which photos."""
    from visvm.cli.evaluated import show_evaluation, write_evaluation_page
    from visvm.cli.terminal import answer, note, progress_bars
    from visvm.encoders.transform import check_views
    from visvm.image_classifier import ImageClassifier

    _check_outputs(plot, html, force, (model, folder, encoder))
    for output in (plot, html):
        require_no_photo(output, folder, nested)
    classifier = ImageClassifier.load(
        model, encoder=encoder, cache=not no_cache, for_prediction=True
    )
    check_views(views)
    tell_views(views, quiet)
    with progress_bars(quiet) as progress:
        result = classifier.evaluate(
            folder, nested=nested, skip_unreadable=skip_unreadable, views=views, progress=progress
        )
    if plot is not None:
        from visvm.cli.figures import draw_evaluation

        draw_evaluation(result, plot)
        if not quiet:
            note(f"figure: {plot}")
    if html is not None:
        write_evaluation_page(html, model, folder, result)
        if not quiet:
            note(f"page: {html}")
    if result.never_learned and not quiet:
        unknown = ", ".join(map(str, result.never_learned))
        note(f"Skipped, as the model does not know them: {unknown}")
    answer(result, lambda: show_evaluation(result, wrong=wrong), as_json=as_json)


def _check_outputs(
    plot: Path | None, html: Path | None, force: bool, read: "Sequence[str | Path | None]"
) -> None:
    """Refuse what a figure or a page cannot be written to, before work is spent on it."""
    if plot is not None:
        require_drawing()
        from visvm.cli.figures import check_figure_name

        check_figure_name(plot)
        require_unread(plot, *read)
    require_page(html, force)
    if html is not None:
        require_unread(html, *read)


def info(model: ModelPath, as_json: Json = False) -> None:
    """Show what a model knows: classes with counts, sessions, encoder, sizes."""
    from visvm.cli.reporting import describe, show_model
    from visvm.cli.terminal import answer

    described = describe(model)
    answer(described, lambda: show_model(described), as_json=as_json)
