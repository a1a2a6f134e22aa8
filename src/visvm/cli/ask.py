"""Commands that ask a model and leave it as it is: ``predict``, ``evaluate`` and ``info``."""

import csv
import glob
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visvm.cli.options import (
    Folder,
    Html,
    Json,
    ModelPath,
    Nested,
    NoCache,
    Quiet,
    SkipUnreadable,
    Views,
    Where,
    require_page,
    tell_views,
)
from visvm.errors import InputError

if TYPE_CHECKING:
    from visvm.model.results import Prediction


def predict(
    model: ModelPath,
    images: Annotated[
        list[str],
        typer.Argument(
            help="Images, folders, or patterns such as 'photos/*.jpg'.", metavar="IMAGE…"
        ),
    ],
    top: Annotated[
        int | None, typer.Option(min=1, help="How many classes to name; 5 by default.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Give the head's scores instead of probabilities.")
    ] = False,
    unknown: Annotated[
        str,
        typer.Option(
            help="Answer 'none of these' to photos that look less familiar than all but this share "
            "of the learned ones, which is refused in error then; off never does."
        ),
    ] = "5%",
    sure: Annotated[
        str,
        typer.Option(
            help="Where labels such as bird/owl and bird/wren form groups: answer with the group "
            "unless a class is at least so probable."
        ),
    ] = "60%",
    views: Views = "one",
    encoder: Where = None,
    no_cache: NoCache = False,
    as_csv: Annotated[
        bool,
        typer.Option(
            "--csv", help="Write a table of path,label,score,known,unknown to standard output."
        ),
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say what images show: the likeliest class of each, with its probability."""
    from visvm.cli.terminal import out, progress_bars
    from visvm.encoders.pipeline import Unreadable, refuse_unreadable
    from visvm.encoders.transform import check_views
    from visvm.model.predictor import ImagePredictor

    check_views(views)
    if as_csv and as_json:
        advice = "--csv and --json were both given. Leave one of them out."
        raise InputError(advice, code="option-csv-or-json")
    if as_csv and top is not None:
        advice = "--csv gives one class an image, and --top was given. Leave one of them out."
        raise InputError(advice, code="option-csv-or-top")
    rate, share = rate_of(unknown), _share(sure, "--sure", code="sure-share")
    paths = expand_images(images)
    predictor = ImagePredictor.load(model, encoder=encoder, cache=not no_cache, for_prediction=True)
    tell_views(views, quiet)
    unreadable = []
    how: Any = {"top": top or 5, "raw": raw, "unknown": rate, "sure": share, "views": views}
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
                _show_answer(outcome, raw=raw, as_json=as_json)
    refuse_unreadable(unreadable, "")


def _show_answer(answer: "Prediction", *, raw: bool, as_json: bool) -> None:
    from visvm.cli.terminal import out, print_json
    from visvm.errors import shown
    from visvm.model.formats import percent

    if as_json:
        top = [{"label": label, "score": score} for label, score in answer.top]
        said = {"path": answer.path, "label": answer.label, "score": answer.score, "top": top}
        known = {"known": answer.known, "unknown": answer.unknown}
        level = {"level": answer.level, "level_score": answer.level_score}
        print_json({**said, **known, **level}, indent=None)
        return
    best = [f"{label} {f'{score:.3f}' if raw else percent(score)}" for label, score in answer.top]
    if answer.level is not None and answer.level != answer.label:
        best = [f"{answer.level} {percent(answer.level_score or 0.0)}", *best]
    if answer.unknown:
        best = ["none of these", f"closest: {best[0]}", *best[1:]]
    console = out()
    console.print(f"{shown(answer.path)}: ", end="", markup=False)
    console.print(best[0], style="bold", end="", markup=False)
    console.print("".join(f" · {each}" for each in best[1:]), style="dim", markup=False)


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
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw accuracy by class and confusions to this PNG, PDF or SVG file."),
    ] = None,
    wrong: Annotated[
        bool, typer.Option("--wrong", help="List the photos that were answered wrongly.")
    ] = False,
    html: Html = None,
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

    if plot is not None:
        from visvm.cli.figures import check_figure_name, draw_evaluation

        check_figure_name(plot)
    require_page(html)
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


def info(model: ModelPath, as_json: Json = False) -> None:
    """Show what a model knows: classes with counts, sessions, encoder, sizes."""
    from visvm.cli.reporting import describe, show_model
    from visvm.cli.terminal import answer

    described = describe(model)
    answer(described, lambda: show_model(described), as_json=as_json)
