"""What ``visvm learn``, ``evaluate`` and ``info`` show to people."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from visvm.cli.terminal import answer, note, out, table
from visvm.errors import shown
from visvm.head.memory import human_bytes
from visvm.model import undo
from visvm.model.estimate import estimate_notes
from visvm.model.events import Event, last_change
from visvm.model.file import read_header
from visvm.model.formats import counted, percent
from visvm.model.header import report_as_dict
from visvm.model.labels import is_forgotten
from visvm.model.results import (
    EncoderChoice,
    SessionReport,
    SessionTest,
    TransformChoice,
    first_session_note,
    ridge_note,
)
from visvm.model.sites import SiteStatistics

if TYPE_CHECKING:
    from visvm.image_classifier import ImageClassifier


def knows(path: Path, classifier: "ImageClassifier") -> str:
    """Say how many classes a model file knows."""
    return f"{path} knows {counted(len(classifier.classes_), 'class')}"


def answer_change(path: Path, said: str, as_json: bool, quiet: bool, **facts: object) -> None:
    """Say what was done: in words, or by what the file holds now and more facts."""
    described = describe(path) if as_json else {}
    now = {name: described[name] for name in ("path", "bytes", "classes") if as_json}
    answer({**now, **facts}, said, as_json=as_json, quiet=quiet)


def show_report(model: Path, report: SessionReport) -> None:
    """Show what a session did."""
    console = out()
    new = counted(len(report.new_classes), "new class")
    again = counted(len(report.returning_classes), "returning class")
    known = f"{escape(model.name)} now knows {counted(report.n_classes, 'class')}"
    images = counted(report.n_images, "image")
    console.print(f"[bold]session {report.session}[/]: {images}, {new}, {again}; {known}")
    times = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in report.seconds.items())
    memory = "" if report.peak_memory is None else f" · memory {human_bytes(report.peak_memory)}"
    console.print(
        f"λ = {report.ridge:g} · blocks {', '.join(map(str, report.layers))} · {times}{memory}",
        markup=False,
    )
    if (renewed := ridge_note(report)) is not None:
        console.print(renewed, markup=False)
    if report.encoder is not None:
        console.print(_chosen_encoder(report.encoder), markup=False)
    if report.transform is not None:
        console.print(_chosen(report.transform), markup=False)
    if report.settled_on is not None:
        sample = f"a sample of {report.settled_on} images"
        console.print(f"λ, blocks and mixer were settled on {sample}; all were learned")
    if report.n_classes > 1 and (warning := first_session_note(report)) is not None:
        note(warning)
    if report.skipped:
        console.print(_skipped(report.skipped), markup=False)
    for line in estimate_notes(report.estimate):
        console.print(line, markup=False)
    if report.test is not None:
        console.print(_tested(report.test), style="bold", markup=False)


def _tested(test: SessionTest) -> str:
    """Say how accurate a model is on test images; of old and new classes only where both are."""
    said = f"accuracy on {counted(test.n, 'test image')} of the classes known: "
    said += percent(test.accuracy)
    parts = {
        "old classes": test.old_accuracy,
        "before this session": test.accuracy_before,
        "new classes": test.new_accuracy,
    }
    if test.old_accuracy is None:
        return said
    shares = [f"{name} {percent(share)}" for name, share in parts.items() if share is not None]
    return f"{said} ({', '.join(shares)})"


def _chosen(choice: TransformChoice) -> str:
    """Say which transform was chosen, and by how much."""
    if not choice.n:
        return f"transform {choice.transform}, the default: too few photos or classes to try others"
    kinds = sorted(choice.accuracies, key=lambda kind: -choice.accuracies[kind])
    shares = ", ".join(f"{kind} {percent(choice.accuracies[kind])}" for kind in kinds)
    why = "the best" if choice.transform == kinds[0] else "as no other is clearly ahead"
    tried = f"of {choice.n} photos left out in turn, {shares} right"
    return f"transform {choice.transform}, {why}: {tried}"


def _chosen_encoder(choice: EncoderChoice) -> str:
    """Say which encoder was chosen, why, and what each of them has shown."""
    time = "" if choice.minutes is None else f" ({choice.minutes:g} minutes)"
    said = f"encoder {choice.encoder}, {choice.why}{time}"
    if not choice.milliseconds:
        return said
    shown = [
        f"{name} {percent(share)} right at {choice.milliseconds[name]:.0f} ms an image"
        for name, share in sorted(choice.accuracies.items(), key=lambda item: -item[1])
    ] + [
        f"{name} not tried at {milliseconds:.0f} ms an image"
        for name, milliseconds in choice.milliseconds.items()
        if name not in choice.accuracies
    ]
    sample = f"of {choice.n} photos left out in turn, " if choice.n else ""
    return f"{said}: {sample}{', '.join(shown)}"


def show_statistics(path: Path, sums: SiteStatistics) -> None:
    """Show what is in a site's sums."""
    skipped = sums.history[0]["skipped"]
    left_out = f"; {_skipped(skipped)}" if skipped else ""
    out().print(
        f"{path}: the sums of {counted(sums.n_images, 'image')} of "
        f"{counted(len(sums.counts), 'class')}, for site {sums.site}{left_out}\n"
        f"Send it to the owner of the model, to run: visvm merge OUT MODEL {path.name}",
        markup=False,
    )


def describe(path: Path) -> dict[str, Any]:
    """Return what the header of a model file says: classes, sessions, encoder, sizes."""
    header = read_header(path)
    head, kind = header.head, header.kind_by_parts
    counts = dict(zip(header.classes, header.counts, strict=True))
    history = header.sessions, header.events
    return {
        "path": str(path),
        "bytes": path.stat().st_size,
        "format": header.format,
        "kind": kind,
        "classes": {label: n for label, n in counts.items() if not is_forgotten(label)},
        "forgotten_images": sum(n for label, n in counts.items() if is_forgotten(label)),
        "sessions": [report_as_dict(each) for each in header.sessions],
        "events": [asdict(each) for each in header.events],
        "can_undo": None if undo.available(path) is None else last_change(*history),
        "encoder": header.encoder.name,
        "weights_sha256": header.encoder.digest,
        "transform": header.encoder.transform,
        "views": header.encoder.views,
        "n_components": head.n_components,
        "ridge": head.chosen_ridge,
        "ridge_basis": None if head.ridge_basis is None else asdict(head.ridge_basis),
        "layers": list(head.layers),
        "texts": {"classes": head.text_classes, "weight": head.text_weight}
        if head.text_classes
        else None,
        "form": head.form,
        "can_learn": kind in ("whole", "site"),
        "remembered_photos": None if header.photos is None else len(header.photos.digests),
        "statistics_only": kind == "sums",
        "site": header.site,
        "merged": [
            {name: getattr(each, name) for name in ("file", "id", "merged_at", "n_images")}
            for each in header.merged
        ],
    }


def show_model(described: dict[str, Any]) -> None:
    """Show what `describe` found."""
    console = out()
    counts = described["classes"]
    console.print(table("classes", ["class", "images"], list(counts.items()), right=["images"]))
    rows = []
    for entry in described["sessions"]:
        test = entry["test"] or {"accuracy": None, "old_accuracy": None, "new_accuracy": None}
        estimate = (entry.get("estimate") or {}).get("accuracy")
        accuracies = [percent(test[name]) for name in ("accuracy", "old_accuracy", "new_accuracy")]
        news = [len(entry["new_classes"]), len(entry["returning_classes"])]
        rows.append(
            (
                *(entry["session"], _when(entry["learned_at"]), entry["n_images"], *news),
                *(percent(estimate), *accuracies),
            )
        )
    columns = ["#", "when (UTC)", "images", "new", "again", "estimated", "accuracy", "old"]
    columns += ["new only"]
    console.print(table("sessions", columns, rows, right=[columns[0], *columns[2:]]))
    if described["events"]:
        events = [Event(**each) for each in described["events"]]
        changes = [(each.after_session, _when(each.at), each.said) for each in events]
        console.print(table("other changes", ["after #", "when (UTC)", "what"], changes))
    if described["merged"]:
        columns = ["file", "site", "when (UTC)", "images"]
        rows = [
            (each["file"], each["id"], _when(each["merged_at"]), each["n_images"] or "masked")
            for each in described["merged"]
        ]
        console.print(table("sites merged", columns, rows, right=columns[3:]))
    if described["forgotten_images"]:
        n = described["forgotten_images"]
        console.print(f"{n} more images are of classes that were forgotten", markup=False)
    blocks = ", ".join(map(str, described["layers"]))
    console.print(
        f"{described['path']}: {human_bytes(described['bytes'])}, "
        f"{counted(len(counts), 'class')}, {counted(sum(counts.values()), 'image')}\n"
        f"encoder {described['encoder']} ({described['weights_sha256'][:12]}), "
        f"transform {described['transform']}, views {described['views']}, blocks {blocks}, "
        f"D = {described['n_components']}, λ = {described['ridge']:g}{_chosen_by(described)}"
        f"{_texts(described)}{_remembered(described)}\n"
        f"{_what_for(described)}{_undoable(described)}",
        markup=False,
    )


def _chosen_by(described: dict[str, Any]) -> str:
    """Say by what λ was chosen, where that is known."""
    if (basis := described["ridge_basis"]) is None:
        return ""
    n_images, n_classes = basis["n_images"], basis["n_classes"]
    return f", chosen by {counted(n_images, 'image')} of {counted(n_classes, 'class')}"


def _texts(described: dict[str, Any]) -> str:
    """Say of how many classes there are texts."""
    if (texts := described["texts"]) is None:
        return ""
    n = len(set(texts["classes"]))
    return f", text of {counted(n, 'class')}, each as {texts['weight']:g} photos"


def _remembered(described: dict[str, Any]) -> str:
    """Say of how many photos there are digests."""
    if (n := described["remembered_photos"]) is None:
        return ""
    return f"\nit remembers {counted(n, 'photo')} by digests"


def _undoable(described: dict[str, Any]) -> str:
    """Say what 'visvm undo' would take back."""
    if (change := described["can_undo"]) is None:
        return ""
    return f"\n'visvm undo {described['path']}' takes back the last change: {change}"


def _skipped(files: Sequence[str]) -> str:
    return f"skipped {counted(len(files), 'unreadable file')}: {', '.join(map(shown, files))}"


def _when(moment: str) -> str:
    return moment[:16].replace("T", " ")


def _what_for(described: dict[str, Any]) -> str:
    """Say what a file can be used for."""
    site = "" if described["site"] is None else f"of site {described['site']}: "
    name = Path(described["path"]).name
    uses = {
        "whole": "it has its sums and can learn more",
        "predictor": "it was exported for predicting and cannot learn more",
        "site": f"nothing is learned yet; 'visvm learn {name} FOLDER --statistics-only OUT' makes "
        "the site's sums",
        "sums": "it has sums and no model to ask; add it to one with 'visvm merge'",
        "journal": "it is the journal of a session; run the same 'visvm learn' again to resume it",
    }
    return site + uses[described["kind"]]
