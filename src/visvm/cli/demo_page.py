"""The demo's result as a page in one file: figure, photos, table, answers, what to try next."""

import shlex
from pathlib import Path

from visvm.cli.demo_results import Demo
from visvm.cli.gallery import PhotoCard, PhotoSection, write_page
from visvm.model.formats import percent
from visvm.model.labels import Label

_STRANGERS = "Photos of nothing that was learned, by danielbuechele and vultilion (CC BY 2.0)."


def lines_to_try(command: str, model: Path, mixed: Path, demo: Demo) -> list[str]:
    """Return the commands to try next."""
    photo = str(demo.stream.test.sources[0])
    arguments = (
        ("predict", str(model), photo),
        ("check", str(mixed)),
        ("learn", "mine.visvm", "photos/"),
        ("learn", "mine.visvm", "more-photos/"),
    )
    notes = (
        "# what a photo shows",
        "# finds the wrong label",
        "# your own photos, one folder per class",
        "# any day later: new classes, more photos, or both",
    )
    lines = [shlex.join((command, *each)) for each in arguments]
    return [part for pair in zip(notes, lines, strict=True) for part in pair]


def write_result(path: Path, demo: Demo, figure: bytes, lines: list[str]) -> None:
    """Write the page."""
    last = demo.sessions[-1]
    columns, rows = demo.table
    numbers = {
        label: number
        for number, session in enumerate(demo.sessions, start=1)
        for label in session.classes
    }
    learned = [
        [_card(demo, label, f"session {number}, {demo.n_learned(label)} photos")]
        for label, number in numbers.items()
    ]
    strangers = [
        [PhotoCard(each.answer.path, looks=each.said, more=each.what)] for each in demo.strangers
    ]
    wrong = demo.planted
    label = PhotoCard(wrong.path, f"labelled {wrong.label}", wrong.said, f"really {wrong.true}")
    alt = (
        f"Accuracy over {len(demo.sessions)} sessions: visvm ends at {percent(last.ours, 0)}, the "
        f"linear probe at {percent(last.probe, 0)}, the head that forgets at "
        f"{percent(last.forgetting, 0)}"
    )
    sections = (
        PhotoSection("What was remembered", " ".join(demo.fairness), drawing=figure, alt=alt),
        PhotoSection("Session by session", columns=columns, rows=rows, n_texts=1),
        PhotoSection("Strangers", f"{_STRANGERS} {demo.refused}", strangers),
        PhotoSection(
            "A wrong label, planted",
            "One photo was given the label of another class, and all labels were checked.",
            [[label]],
        ),
        PhotoSection("What was learned", "The first photo of each class.", learned),
        PhotoSection("Try it", commands=lines),
    )
    facts = (
        f"visvm {percent(last.ours, 0)}",
        f"linear probe, retrained on everything {percent(last.probe, 0)}",
        f"head that forgets {percent(last.forgetting, 0)}",
    )
    title = f"{last.n_known} classes, learned a few at a time"
    write_page(path, title, f"{demo.counts}. {demo.what}", facts, sections)


def _card(demo: Demo, label: Label, more: str) -> PhotoCard:
    return PhotoCard(str(demo.sample(label)), looks=str(label), more=more)
