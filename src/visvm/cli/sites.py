"""Commands that bring models and sites together, or part them: merge, unmerge and export."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from visvm.cli.options import (
    Force,
    Json,
    ModelPath,
    Quiet,
    Where,
    answer_made,
    changed,
    home,
    require_new,
    require_other,
    tell_waiting,
)
from visvm.cli.undo import NoUndo, tell_kept
from visvm.errors import InputError, ModelFileError


def merge(
    output: Annotated[
        Path, typer.Argument(help="The new model file.", metavar="OUT", callback=home)
    ],
    models: Annotated[
        list[Path],
        typer.Argument(
            help="A model, and what to add to it: models grown from copies of it, or files of "
            "'visvm learn --statistics-only'.",
            metavar="MODEL SITE…",
        ),
    ],
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Add up what several models or sites have learned. None is added twice."""
    from visvm.cli.reporting import answer_change
    from visvm.cli.terminal import note
    from visvm.image_classifier import ImageClassifier
    from visvm.model import changes
    from visvm.model.container import locked
    from visvm.model.file import read_header

    if len(models) < 2:
        advice = "There is one model, and nothing to add to it. Use: visvm merge OUT MODEL SITE…"
        raise InputError(advice, code="merge-one")
    with locked(output, tell_waiting(output, quiet)):
        command = _merging(output, models)
        if _is_made(output, command):
            return answer_made(output, as_json, quiet)
        require_new(output, force)
        histories = [read_header(path).sessions for path in models]
        whole = ImageClassifier.merge_files(models[0], models[1:])
        assert whole.model_ is not None
        whole.model_ = changes.noted(whole.model_, *command)
        whole.save(output)
    twice = 0
    for place, history in enumerate(histories):
        before = [report for other in histories[:place] for report in other]
        shared = sum(each.n_images for each in history if any(map(each.is_same_as, before)))
        twice += shared
        if shared and not quiet:
            note(f"{shared} images were learned by both before they parted and now count twice.")
    said = f"{output} knows {len(whole.classes_)} classes from {sum(whole.class_counts_)} images"
    return answer_change(output, said, as_json, quiet, images_counted_twice=twice)


def _merging(output: Path, models: list[Path]) -> list[str]:
    """Return what tells this merging from others: the content of all that is merged.

    That of a model that is replaced by it is left out, as it is another one afterwards.
    """
    from visvm.model.file import read_digest

    replaced = [output.exists() and path.exists() and output.samefile(path) for path in models]
    pairs = zip(models, replaced, strict=True)
    return ["merge", *("" if same else read_digest(path) for path, same in pairs)]


def _is_made(output: Path, command: list[str]) -> bool:
    """Whether this command has written the output already."""
    from visvm.model import changes
    from visvm.model.file import read

    if not output.exists():
        return False
    with suppress(ModelFileError):  # another file, which is not to be replaced
        return changes.is_made(read(output, sums=False), *command)
    return False


def unmerge(
    model: ModelPath,
    site: Annotated[
        Path, typer.Argument(help="The very file that was merged.", metavar="SITE", callback=home)
    ],
    no_undo: NoUndo = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take a site, or another model, out of MODEL again, as if it had never been merged."""
    from visvm.cli.reporting import answer_change, knows
    from visvm.model.file import read_digest
    from visvm.model.sites import SiteStatistics

    with changed(model, "unmerge", read_digest(site), undo=not no_undo) as classifier:
        if classifier is None:
            return answer_made(model, as_json, quiet)
        sums = SiteStatistics.load(site)
        classifier.unmerge(sums)
    tell_kept(model, no_undo, quiet)
    said = f"took out the {sums.n_images} images of site {sums.site}; {knows(model, classifier)}"
    return answer_change(model, said, as_json, quiet, site=sums.site, n_images=sums.n_images)


def export(
    model: ModelPath,
    output: Annotated[
        Path | None,
        typer.Argument(
            help="The new file, for predicting: with a name that ends in .onnx, one for ONNX "
            "Runtime, which needs no visvm.",
            metavar="OUT",
            callback=home,
        ),
    ] = None,
    for_site: Annotated[
        Path | None,
        typer.Option(
            metavar="SITE",
            callback=home,
            help="Write, instead of OUT, what another site needs to learn for this model, under an "
            "id of its own: encoder, mixer, map and λ. Of your data it holds what the first "
            "session settled; no class, sum or history.",
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="With OUT.onnx: in which its weights are stored, float32, float16 (half the size) "
            "or int8 (a quarter).",
            show_default="float32",
        ),
    ] = None,
    pixels: Annotated[
        str | None,
        typer.Option(
            help="With OUT.onnx: what it takes, uint8 (0…255) or float32 (0…1).",
            show_default="uint8",
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(min=1, help="With OUT.onnx: how many classes it names.", show_default="5"),
    ] = None,
    head_only: Annotated[
        bool,
        typer.Option("--head-only", help="With OUT.onnx: take layer features instead of photos."),
    ] = False,
    web: Annotated[
        bool,
        typer.Option(
            "--web",
            help="Make OUT a folder that any web server can show: a page that asks the model in "
            "the browser, without a network once it is loaded. Weights are int8 by default.",
        ),
    ] = False,
    runtime: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=home,
            help="With --web: the npm package onnxruntime-web, as 'npm pack' writes it. npm "
            "fetches it by default.",
        ),
    ] = None,
    encoder: Where = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a smaller file that can only predict, or one with which another site can learn.

    Neither holds the sums.
    """
    from visvm.cli.reporting import answer_change
    from visvm.head.memory import human_bytes
    from visvm.image_classifier import ImageClassifier
    from visvm.model.file import read_header

    written = for_site if output is None else output
    if written is None or (output is not None and for_site is not None):
        got = "neither was" if written is None else "both were"
        advice = f"Give OUT or --for-site SITE; {got} given. See 'visvm export --help'."
        raise InputError(advice, code="export-output")
    options = {
        "precision": precision,
        "pixels": pixels,
        "top": top,
        "head_only": head_only or None,
        "encoder": encoder,
        "runtime": runtime,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if web or written.suffix.lower() == ".onnx":
        _check_portable(written, given, for_site, web)
        return _export_portable(model, written, given, web, force, as_json, quiet)
    if given:
        option = "--" + next(iter(given)).replace("_", "-")
        advice = f"{option} is for OUT.onnx. Give such a name, or leave the option out."
        raise InputError(advice, code="option-of-onnx")
    classifier, site = ImageClassifier.load(model, for_prediction=True), None
    if not force and classifier.has_exported(written, for_site=for_site is not None):
        known = read_header(written).site if for_site is not None else None
        return answer_made(written, as_json, quiet, site=known)
    require_new(written, force)
    require_other(written, model, "Exporting")
    if output is not None:
        classifier.export(output)
        what = f"of {human_bytes(model.stat().st_size)}"
    else:
        site = classifier.export_for_site(written)
        what = f"for site {site}"
    said = f"{written}: {human_bytes(written.stat().st_size)}, {what}"
    return answer_change(written, said, as_json, quiet, site=site)


def _check_portable(output: Path, given: dict[str, Any], for_site: Path | None, web: bool) -> None:
    """Refuse options that do not go together."""
    named = output.suffix.lower() == ".onnx"
    wrong = ("pixels", "head_only") if web else ("runtime",)
    options = ["--" + name.replace("_", "-") for name in wrong if name in given]
    if for_site is not None:
        advice = "Sites take no ONNX files. Give --for-site another name, and leave --web out."
    elif web and named:
        advice = f"--web writes a folder. Leave '.onnx' out of {output.name}, or --web."
    elif options:
        advice = f"{options[0]} is {'not ' * web}for --web. Leave one of them out."
    else:
        return
    raise InputError(advice, code="option-of-onnx")


def _export_portable(
    model: Path,
    output: Path,
    given: dict[str, Any],
    web: bool,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write the ONNX file of a model, or the folder of its page."""
    from visvm.cli.terminal import answer, progress_bars
    from visvm.head.memory import human_bytes
    from visvm.model.predictor import ImagePredictor

    predictor = ImagePredictor.load(model, encoder=given.pop("encoder", None), for_prediction=True)
    require_other(output, model, "Exporting")
    with progress_bars(quiet) as progress:
        if web:
            made = predictor.export_web(output, replaces=force, progress=progress, **given)
        else:
            if "head_only" not in given:
                predictor.load_encoder(progress)
            made = predictor.export_onnx(output, replaces=force, **given)
    said = f"{output}: already done; nothing changed"
    if not made.already_done:
        size, encoder_size = human_bytes(made.bytes), human_bytes(made.encoder_bytes)
        said = f"{output}: {size} in {made.precision}, of which the encoder has {encoder_size}"
    facts = {"path": str(output), "classes": len(predictor.classes_), **vars(made)}
    answer(facts, said, as_json=as_json, quiet=quiet)
