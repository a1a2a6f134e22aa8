"""What ``visvm evaluate`` shows: tables on the terminal, and a page with the wrong answers."""

from pathlib import Path

from visvm.cli.gallery import PhotoCard, PhotoSection, write_page
from visvm.cli.terminal import out, table
from visvm.errors import shown
from visvm.model.formats import counted, percent
from visvm.model.results import Evaluation, WrongAnswer

_MOST_SQUARE = 30  # classes of which a page shows who is taken for whom as a square


def show_evaluation(result: Evaluation, *, wrong: bool) -> None:
    """Show accuracy by class, confusions, the photos answered wrongly, and accuracy overall."""
    console = out()
    columns = ["class", "images", "accuracy"]
    console.print(table("by class, worst first", columns, _by_class(result), right=columns[1:]))
    if result.confusions:
        pairs = [(pair.label, pair.predicted, pair.n) for pair in result.confusions[:10]]
        columns = ["class", "taken for", "images"]
        console.print(table("most frequent confusions", columns, pairs, right=columns[2:]))
    if wrong and result.wrong:
        photos = [
            (shown(each.path), each.label, _answer(each), percent(each.score))
            for each in result.wrong
        ]
        columns = ["photo", "shows", "answer", "probability"]
        console.print(table("wrong answers, the surest first", columns, photos, right=columns[3:]))
    if result.skipped:
        files = ", ".join(map(shown, result.skipped))
        console.print(f"skipped, as they are not images: {files}", markup=False)
    console.print(_unknown(result), markup=False)
    images = counted(result.n, "image")
    console.print(f"accuracy on {images}: {percent(result.accuracy)}", style="bold")


def _by_class(result: Evaluation) -> list[tuple[object, ...]]:
    worst = sorted(result.per_class.items(), key=lambda item: item[1].accuracy)
    return [(label, each.n, percent(each.accuracy)) for label, each in worst]


def _answer(each: WrongAnswer) -> str:
    return f"none of these (closest: {each.predicted})" if each.unknown else str(each.predicted)


def _unknown(result: Evaluation) -> str:
    share = percent(result.n_unknown / result.n)
    return f"'none of these' would be said of {result.n_unknown} of them ({share})"


def write_evaluation_page(path: Path, model: Path, folder: str, result: Evaluation) -> None:
    """Write the photos answered wrongly and the tables as a page."""
    cards = [
        [
            PhotoCard(
                each.path,
                f"shows {each.label}",
                f"answer: {_answer(each)}",
                f"probability {percent(each.score)}",
            )
        ]
        for each in result.wrong
    ]
    pairs = [(pair.label, pair.predicted, pair.n) for pair in result.confusions]
    facts = [
        f"Accuracy {percent(result.accuracy)}",
        f"{len(result.wrong)} of {result.n} photos answered wrongly",
        f"{_unknown(result)[0].upper()}{_unknown(result)[1:]}",
    ]
    columns, rows = ("class", "images", "accuracy"), _by_class(result)
    sections = (
        PhotoSection("By class, worst first", columns=columns, rows=rows),
        PhotoSection(
            "Taken for another class",
            columns=("class", "taken for", "images"),
            rows=pairs,
            n_texts=2,
        ),
        _square(result),
        PhotoSection("Wrong answers, the surest first", groups=cards),
    )
    write_page(path, "Where the model is wrong", f"{model} on {folder}", facts, sections)


def _square(result: Evaluation) -> PhotoSection:
    """Return who is taken for whom, as a square table; nothing where it would be too large."""
    answered = {pair.predicted for pair in result.confusions}
    labels = sorted({*result.per_class, *answered}, key=str)
    if len(labels) > _MOST_SQUARE:
        return PhotoSection("")
    n = {(pair.label, pair.predicted): pair.n for pair in result.confusions}
    n |= {(label, label): round(each.n * each.accuracy) for label, each in result.per_class.items()}
    rows = [
        (label, *(n.get((label, other)) or "" for other in labels))
        for label in labels
        if label in result.per_class
    ]
    lead = "A row for what photos show, a column for each answer."
    return PhotoSection("Answers by class", lead, columns=("", *map(str, labels)), rows=rows)
