"""Secure aggregation by files: ``visvm masked join``, ``roster``, ``sums``, ``reveal``, ``total``.

``model/masked.py`` says how it works, and what it does not hold against.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visvm.cli.options import (
    Force,
    Json,
    ModelPath,
    Nested,
    Quiet,
    home,
    require_new,
    require_other,
    require_unread,
)
from visvm.cli.plain import PlainCommand, PlainGroup
from visvm.errors import InputError, ModelFileError, shown

if TYPE_CHECKING:
    from visvm.model.labels import Label
    from visvm.model.rounds import Card, Reveal, Roster
    from visvm.model.sites import SiteStatistics

masked_app = typer.Typer(
    help="Add up several sites' sums so that the collector sees only the total. Each site joins; "
    "the collector makes the roster; each site sends masked sums; the collector makes the total.",
    no_args_is_help=True,
    cls=PlainGroup,
)

SitePath = Annotated[
    Path,
    typer.Argument(
        help="What the collector sent: the file of 'visvm export --for-site'.",
        metavar="SITE",
        callback=home,
    ),
]
Classes = Annotated[
    str,
    typer.Argument(
        help="The folder or CSV file to learn; the names of its classes go into the card. Or a "
        ".txt file with a name a line, which may name more classes than the site has.",
        metavar="CLASSES",
    ),
]
NewKey = Annotated[
    Path,
    typer.Argument(
        help="The new key, such as north.key: keep it, and send north.card, which is made beside "
        "it.",
        metavar="KEY",
        callback=home,
    ),
]
KeyPath = Annotated[
    Path, typer.Argument(help="The site's key. It stays there.", metavar="KEY", callback=home)
]
RosterPath = Annotated[
    Path,
    typer.Argument(help="Who takes part, from the collector.", metavar="ROSTER", callback=home),
]
NewFile = Annotated[Path, typer.Argument(help="The new file.", metavar="OUT", callback=home)]


@masked_app.command("join", cls=PlainCommand)
def masked_join(
    site: SitePath,
    classes: Classes,
    key: NewKey,
    nested: Nested = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """At a site: make a key, and the card by which others know it."""
    from visvm.cli.terminal import answer
    from visvm.model.file import read
    from visvm.model.rounds import Key, join, read_note, write_note

    card = key.with_suffix(".card")
    if card == key:
        raise InputError("KEY must not end in .card. Call it north.key.", code="masked-key-name")
    made = join(read(site, sums=False), key.stem, _named_classes(classes, nested))
    if key.exists():
        known = read_note(key, Key)
        if (known.card.site, known.card.classes) != (made.card.site, made.card.classes):
            require_new(key, force=False)
        made = known  # after a kill, perhaps before the card was written
    if not _is_card(card, made.card):
        if not key.exists():
            write_note(key, made)
        write_note(card, made.card)
    n = len(made.card.classes)
    said = f"{shown(card)}: send it to the collector; it names {n} classes. Keep {shown(key)}."
    answer({"card": card, "key": key, "classes": n}, said, as_json=as_json, quiet=quiet)


def _is_card(path: Path, card: "Card") -> bool:
    """Whether a file is this very card; refuse another one, as of a site that sent its own."""
    from visvm.model.rounds import Card, read_note

    if not os.path.lexists(path):
        return False
    with suppress(ModelFileError):
        if read_note(path, Card) == card:
            return True
    raise ModelFileError(
        f"{shown(path)} already exists. Choose another name for KEY.", code="file-exists"
    )


def _named_classes(classes: str, nested: bool | None) -> "list[Label]":
    from visvm.encoders.files import MOST_OF_TEXT, read_file
    from visvm.encoders.sources import expanded
    from visvm.learning.labelled import read_labelled

    if not classes.endswith(".txt"):
        return list(read_labelled(classes, nested=nested).labels)
    try:
        text = read_file(expanded(classes), MOST_OF_TEXT).decode()
        return [line for line in text.splitlines() if line.strip()]
    except OSError as error:
        raise InputError(
            f"{shown(classes)} cannot be read ({error.strerror}). Check the path.",
            code="masked-classes",
        ) from error
    except ValueError as error:
        raise InputError(
            f"{shown(classes)} is not text in UTF-8. Save it so.", code="masked-classes"
        ) from error


@masked_app.command("roster", cls=PlainCommand)
def masked_roster(
    model: ModelPath,
    output: NewFile,
    cards: Annotated[list[Path], typer.Argument(help="The card of every site.", metavar="CARD…")],
    most_images: Annotated[
        int, typer.Option(help="How many photos all sites may have together, about.")
    ] = 1_000_000,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """At the collector: say who takes part. Send the roster to all of them."""
    from visvm.cli.terminal import answer
    from visvm.model import changes
    from visvm.model.file import read
    from visvm.model.rounds import Card, make_roster, read_note, write_note

    require_other(output, model, "The roster")
    require_unread(output, *cards)
    whole = read(model)
    changes.require_sums(whole, "be the base of a round")
    roster = make_roster(whole, [read_note(path, Card) for path in cards], most_images)
    if not _is_there(output, roster, force):
        write_note(output, roster)
    said = (
        f"{shown(output)}: {len(roster.cards)} sites, {len(roster.classes)} classes. Its "
        f"fingerprint is {roster.fingerprint}; every site should compare it with the others."
    )
    facts = {"roster": output, "sites": roster.names, "classes": roster.classes}
    answer({**facts, "fingerprint": roster.fingerprint}, said, as_json=as_json, quiet=quiet)


def _is_there(output: Path, note: "Roster | Reveal", force: bool) -> bool:
    """Whether this very note is there already; refuse to replace another unless by force."""
    from visvm.model.rounds import read_note

    if force or not output.exists():
        return False
    with suppress(ModelFileError):  # another file
        kind: Any = type(note)
        if read_note(output, kind) == note:
            return True
    require_new(output, force)
    return False


@masked_app.command("sums", cls=PlainCommand)
def masked_sums(
    key: KeyPath,
    roster: RosterPath,
    sums: Annotated[
        Path,
        typer.Argument(
            help="The site's sums, of 'visvm learn SITE FOLDER --statistics-only SUMS "
            "--reveal-features'. They stay at the site.",
            metavar="SUMS",
            callback=home,
        ),
    ],
    output: NewFile,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """At a site: mask its sums. Send OUT to the collector."""
    from visvm.cli.terminal import answer
    from visvm.head.memory import human_bytes
    from visvm.model.container import locked
    from visvm.model.masked import mask, masked_once
    from visvm.model.rounds import Key, Roster, read_note, write_note
    from visvm.model.sites import SiteStatistics

    require_other(output, sums, "Masking")
    require_unread(output, key, roster)
    who = read_note(roster, Roster)
    read_note(key, Key)  # before a lock is made beside it
    with locked(key), locked(output):
        own, given = read_note(key, Key), SiteStatistics.load(sums)
        made, noted = mask(own, who, given), masked_once(own, who, given)
        if force or not (output.exists() and made.are_in(output)):
            require_new(output, force)
            write_note(key, noted)  # before anything can leave the site
            made.save(output)
    said = (
        f"{shown(output)}: {human_bytes(output.stat().st_size)}, masked with {len(made.checks)} "
        f"others. The roster's fingerprint is {who.fingerprint}. Send {shown(output)} only if the "
        "other sites have the same fingerprint, and know each other."
    )
    facts = {"path": output, "sites": who.names, "fingerprint": who.fingerprint}
    answer(facts, said, as_json=as_json, quiet=quiet)


@masked_app.command("reveal", cls=PlainCommand)
def masked_reveal(
    key: KeyPath,
    roster: RosterPath,
    output: NewFile,
    without: Annotated[
        list[str], typer.Option(help="Name of a site that dropped out; once for each.")
    ],
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """At a site: undo the masks shared with sites that dropped out. Send OUT to the collector.

    Ask those sites first: their sums must not have left them, and must never do so. A collector
    who has them can read them with this.
    """
    from visvm.cli.terminal import answer
    from visvm.model.container import locked
    from visvm.model.masked import reveal
    from visvm.model.rounds import Key, Roster, read_note, write_note

    require_unread(output, key, roster)
    who = read_note(roster, Roster)
    read_note(key, Key)
    with locked(key):
        own = read_note(key, Key)
        noted, made = reveal(own, who, who.sites_named(without))
        if not _is_there(output, made, force):
            write_note(key, noted)  # before anything can leave the site
            write_note(output, made)
    gone = ", ".join(map(shown, without))
    said = f"{shown(output)}: undoes the masks shared with {gone}, whose sums must never be sent."
    answer({"path": output, "without": without}, said, as_json=as_json, quiet=quiet)


@masked_app.command("total", cls=PlainCommand)
def masked_total(
    model: ModelPath,
    roster: RosterPath,
    output: NewFile,
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Masked sums; and, if sites dropped out, what each of the others revealed.",
            metavar="FILE…",
        ),
    ],
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """At the collector: add all up. OUT holds the sums of all sites; 'visvm merge' adds it."""
    from visvm.cli.reporting import answer_change
    from visvm.cli.terminal import note
    from visvm.model.container import locked
    from visvm.model.file import read
    from visvm.model.formats import counted
    from visvm.model.masked import total
    from visvm.model.rounds import Roster, read_note
    from visvm.model.sites import SiteStatistics

    require_other(output, model, "The total")
    require_unread(output, roster, *files)
    sums = total(read(model, sums=False), read_note(roster, Roster), files)
    with locked(output):  # also to look, so that a lock file that a kill has left goes
        if force or not (output.exists() and _holds(SiteStatistics.load(output), sums)):
            require_new(output, force)
            sums.save(output, reveal_features=True)
    n, least = sums.n_images, sums.minimum
    if not quiet and (n < least.n_images or min(sums.counts.values()) < least.per_class):
        note("This total has too few photos: features of single ones can be computed from it.")
    said = f"{shown(output)}: the sums of {counted(n, 'image')}; add them with 'visvm merge'"
    answer_change(output, said, as_json, quiet, site=sums.site, n_images=n)


def _holds(one: "SiteStatistics", other: "SiteStatistics") -> bool:
    return one.site == other.site and (
        one.model.head.statistics.digest() == other.model.head.statistics.digest()
    )
