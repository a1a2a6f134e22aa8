"""A model card: what a model is, in Markdown with the front matter of model hubs."""

import json
from collections.abc import Iterator

from visvm.encoders.catalog import CATALOG
from visvm.encoders.loading import named
from visvm.errors import escaped
from visvm.model.formats import percent
from visvm.model.results import Evaluation, SessionReport
from visvm.model.state import Model

_MOST_CLASSES = 200  # in the table
_MOST_CONFUSIONS = 10
LIBRARY = "library_name: visvm"
"""A line of every card."""

_HUBS = {"Apache-2.0": "apache-2.0", "MIT": "mit"}  # licences as hubs write them


def model_card(model: Model, name: str, evaluation: Evaluation | None = None) -> str:
    """Return the card of a model.

    Parameters
    ----------
    model : Model
        Which knows a class.
    name : str
        What to call it.
    evaluation : Evaluation, optional
        How it did on test photos; without it, what its last session was tested with.
    """
    parts = [_front_matter(model, evaluation), f"# {_plain(name)}", _about(model), _use()]
    parts += [_accuracy(model, evaluation), _classes(model), _limits(model)]
    return "\n\n".join(parts) + "\n"


def _licence(model: Model) -> str | None:
    bare, _ = named(model.encoder.name)
    return CATALOG[bare].licence if bare in CATALOG else None


def _encoder(model: Model) -> str:
    """Return what the encoder may be called where anybody reads it: not its path."""
    bare, _ = named(model.encoder.name)
    return model.encoder.name if bare in CATALOG else f"a file ({model.encoder.digest[:12]})"


def _plain(text: object) -> str:
    """Return text that Markdown does not read as anything else, in one line."""
    line = escaped(" ".join(str(text).split()))
    return "".join(f"\\{letter}" if letter in r"\`*_[]<>|#" else letter for letter in line)


def _front_matter(model: Model, evaluation: Evaluation | None) -> str:
    # JSON's texts and lists are YAML's as well
    licence = _licence(model)
    lines = [
        f"license: {_HUBS.get(licence or '', 'other')}",
        LIBRARY,
        "pipeline_tag: image-classification",
        f"tags: {json.dumps(['visvm', 'image-classification', 'continual-learning'])}",
    ]
    if evaluation is not None:
        lines += ["metrics:", "- accuracy"]
    return "\n".join(["---", *lines, "---"])


def _about(model: Model) -> str:
    licence, settled = _licence(model), model.head.settled
    rights = f"its weights: {licence}" if licence else "its licence is that of its file"
    return (
        f"Recognises {len(model.classes)} classes, learned from {sum(model.class_counts)} images "
        "by visvm: a frozen encoder, a random kernel map and a least-squares SVM.\n\n"
        f"- Encoder: {_plain(_encoder(model))}, SHA-256 {_plain(model.encoder.digest)}; {rights}\n"
        f"- Images become square by: {model.encoder.transform}\n"
        f"- D = {settled.lift.width}, λ = {settled.ridge:g}, blocks "
        f"{', '.join(map(str, settled.lift.mixer.layers if settled.lift.mixer else ()))}"
    )


def _use() -> str:
    return "## Use\n\n```sh\nvisvm predict model.visvm photo.jpg\n```"


def _accuracy(model: Model, evaluation: Evaluation | None) -> str:
    lines = ["## Accuracy", ""]
    if evaluation is not None:
        lines.append(
            f"{percent(evaluation.accuracy)} of {evaluation.n} test images, measured with "
            "`visvm evaluate` on images that were given for this card."
        )
        lines += _confusions(evaluation)
        return "\n".join(lines)
    tested = [each for each in model.sessions if each.test is not None]
    if not tested:
        return "\n".join([*lines, "Not measured. Give test images: `visvm card MODEL --test DIR`."])
    return "\n".join([*lines, _of_session(tested[-1], model)])


def _of_session(report: SessionReport, model: Model) -> str:
    test = report.test
    assert test is not None, "sessions that were tested are asked for"
    since = len(model.sessions) - report.session
    later = f" {since} sessions were learned since." if since > 0 else ""
    return (
        f"{percent(test.accuracy)} of {test.n} test images, measured after session "
        f"{report.session} on images of the {report.n_classes} classes known then.{later}"
    )


def _confusions(evaluation: Evaluation) -> Iterator[str]:
    if not evaluation.confusions:
        return
    yield from ("", "| shown | taken for | images |", "|---|---|---:|")
    for each in evaluation.confusions[:_MOST_CONFUSIONS]:
        yield f"| {_plain(each.label)} | {_plain(each.predicted)} | {each.n} |"


def _classes(model: Model) -> str:
    pairs = list(zip(model.classes.tolist(), model.class_counts, strict=True))
    lines = ["## Classes", "", "| class | images learned |", "|---|---:|"]
    lines += [f"| {_plain(label)} | {count} |" for label, count in pairs[:_MOST_CLASSES]]
    if len(pairs) > _MOST_CLASSES:
        lines += ["", f"and {len(pairs) - _MOST_CLASSES} more."]
    return "\n".join(lines)


def _limits(model: Model) -> str:
    few = sum(count < 10 for count in model.class_counts)
    lines = [
        "## Limits",
        "",
        "- It tells these classes apart, on images like those it learned.",
        "- An image of something else gets the likeliest of them, unless it looks too unfamiliar.",
        "- Probabilities are calibrated on the learned images, each as if it had not been learned.",
    ]
    if few:
        lines.append(f"- {few} of its classes were learned from fewer than ten images.")
    if model.head.sums is not None:
        lines.append("- The file holds sums from which features of learned images may be computed.")
    return "\n".join(lines)
