"""The command export: a model for predicting, for another site, for ONNX Runtime or as a page."""

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
    home,
    require_new,
    require_other,
    require_unread,
)
from visvm.errors import InputError

Output = Annotated[
    Path | None,
    typer.Argument(
        help="The new file, for predicting: with a name that ends in .onnx, one for ONNX "
        "Runtime, which needs no visvm.",
        metavar="OUT",
        callback=home,
    ),
]
ForSite = Annotated[
    Path | None,
    typer.Option(
        metavar="SITE",
        callback=home,
        help="Write, instead of OUT, what another site needs to learn for this model, under an "
        "id of its own: encoder, mixer, map and λ. Of your data it holds what the first "
        "session settled; no class, sum or history.",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        help="With OUT.onnx: how weights are stored, in float32, float16 (half the size) or int8 "
        "(a quarter).",
        show_default="float32",
    ),
]
WithPixels = Annotated[
    str | None,
    typer.Option(
        help="With OUT.onnx: what it takes, uint8 (0…255) or float32 (0…1).",
        show_default="uint8",
    ),
]
NamedTop = Annotated[
    int | None,
    typer.Option(min=1, help="With OUT.onnx: how many classes it names.", show_default="5"),
]
HeadOnly = Annotated[
    bool,
    typer.Option("--head-only", help="With OUT.onnx: take layer features instead of photos."),
]
Web = Annotated[
    bool,
    typer.Option(
        "--web",
        help="Make OUT a folder that any web server can show: a page that asks the model in "
        "the browser, without a network once it is loaded. Weights are int8 by default.",
    ),
]
Teach = Annotated[
    bool,
    typer.Option(
        "--teach",
        help="With --web: also a page that learns new models from photos, in the browser, with "
        "this model's mixer, map and λ.",
    ),
]
RuntimePath = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        callback=home,
        help="With --web: the npm package onnxruntime-web, as 'npm pack' writes it. npm "
        "fetches it by default.",
    ),
]


def export(
    model: ModelPath,
    output: Output = None,
    for_site: ForSite = None,
    precision: Precision = None,
    pixels: WithPixels = None,
    top: NamedTop = None,
    head_only: HeadOnly = False,
    web: Web = False,
    teach: Teach = False,
    runtime: RuntimePath = None,
    encoder: Where = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a smaller file that can only predict, or one with which another site can learn.

    Neither holds the sums.
    """
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
        "teach": teach or None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if web or written.suffix.lower() == ".onnx":
        _check_portable(written, given, for_site, web)
        return _export_portable(model, written, given, web, force, as_json, quiet)
    if given:
        option = "--" + next(iter(given)).replace("_", "-")
        advice = f"{option} is for OUT.onnx. Give such a name, or leave the option out."
        raise InputError(advice, code="option-of-onnx")
    return _export_model(model, written, for_site is not None, force, as_json, quiet)


def _export_model(
    model: Path, written: Path, for_site: bool, force: bool, as_json: bool, quiet: bool
) -> None:
    """Write the model's file for predicting, or that for another site."""
    from visvm.cli.reporting import answer_change
    from visvm.head.memory import human_bytes
    from visvm.image_classifier import ImageClassifier
    from visvm.model.container import locked
    from visvm.model.file import read_header

    classifier, site = ImageClassifier.load(model, for_prediction=True), None
    with locked(written):  # also to look, so that a lock file that a kill has left goes
        if not force and classifier.has_exported(written, for_site=for_site):
            known = read_header(written).site if for_site else None
            return answer_made(written, as_json, quiet, site=known)
        require_new(written, force)
        require_other(written, model, "Exporting")
        if for_site:
            site = classifier.export_for_site(written)
            what = f"for site {site}"
        else:
            classifier.export(written)
            what = f"of {human_bytes(model.stat().st_size)}"
    said = f"{written}: {human_bytes(written.stat().st_size)}, {what}"
    return answer_change(written, said, as_json, quiet, site=site)


def _check_portable(output: Path, given: dict[str, Any], for_site: Path | None, web: bool) -> None:
    """Refuse options that do not go together."""
    named = output.suffix.lower() == ".onnx"
    wrong = ("pixels", "head_only") if web else ("runtime", "teach")
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
    require_unread(output, predictor.encoder_name)
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
