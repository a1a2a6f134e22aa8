"""Who takes part when sums are masked: keys and cards of the sites, and the roster of a round.

All are small JSON files. A card and a roster may be known to anybody; a key stays at its site.
"""

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from visvm.encoders.files import replacing
from visvm.errors import IncompatibleModelError, InputError, ModelFileError, escaped, shown
from visvm.model.header import SiteId
from visvm.model.labels import Label, check_label
from visvm.model.masks import Scale, largest_mean_square, public_of, require_cryptography
from visvm.model.state import Model

_MOST_BYTES = 2**24  # of a note: each label of it takes several times its size

Hex32 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


class ModelId(msgspec.Struct, frozen=True):
    """What must be the same in all sums of a round; `lift` is the digest of mixer and map."""

    encoder: str
    transform: str
    views: str
    lift: str

    @classmethod
    def of(cls, model: Model) -> "ModelId":
        """Return that of a model."""
        encoder = model.encoder
        lift = model.head.settled.lift.digest
        return cls(encoder.digest, encoder.transform, encoder.views, lift)


class Card(msgspec.Struct, frozen=True, tag_field="visvm", tag="masked-card"):
    """What a site tells the others: a name, its public key, and classes that it may have."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    site: SiteId
    public: Hex32
    model: ModelId
    classes: list[Label]


class Key(msgspec.Struct, frozen=True, tag_field="visvm", tag="masked-key"):
    """What a site keeps: its private key, and what it has done with it in each round."""

    private: Hex32
    card: Card
    masked: dict[Hex32, Hex32] = {}  # round: digest of the sums
    revealed: dict[Hex32, list[SiteId]] = {}  # round: which sites had dropped out


class Roster(msgspec.Struct, frozen=True, tag_field="visvm", tag="masked-roster"):
    """Who takes part in a round, with which classes, sorted, and in which unit."""

    cards: list[Card]
    classes: list[Label]
    scale: Scale

    @property
    def id(self) -> str:
        """SHA-256 of the whole roster: the round's id."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()

    @property
    def fingerprint(self) -> str:
        """The id, as people compare it: all of it, so that no two rosters can be made alike."""
        return " ".join(self.id[begin : begin + 4] for begin in range(0, 64, 4))

    @property
    def names(self) -> dict[str, str]:
        """What the sites are called, by their ids."""
        return {card.site: card.name for card in self.cards}

    @property
    def model(self) -> ModelId:
        """What all sums must have been learned for."""
        return self.cards[0].model

    def sites_named(self, names: Sequence[str]) -> list[str]:
        """Return the ids of sites with these names, sorted."""
        ids = {card.name: card.site for card in self.cards}
        for name in names:
            if name not in ids:
                raise InputError(
                    f"No site of the roster is called {name!r}. They are {listed_names(ids)}.",
                    code="masked-site-unknown",
                )
        return sorted({ids[name] for name in names})


class Reveal(msgspec.Struct, frozen=True, tag_field="visvm", tag="masked-reveal"):
    """The seeds, by the other site's id, of the masks that a site shares with those dropped out."""

    round: Hex32
    site: SiteId
    seeds: dict[SiteId, Hex32]


Note = TypeVar("Note", Card, Key, Roster, Reveal)


def listed_names(names: Iterable[str]) -> str:
    """Return names as a message has them."""
    return ", ".join(escaped(name) for name in sorted(names))


# Notes: small JSON files


def read_note(path: Path, kind: type[Note]) -> Note:
    """Read a card, key, roster or reveal, checked."""
    what = kind.__name__.lower()
    if not path.is_file():
        raise ModelFileError(
            f"There is no file {shown(path)}. Correct the path of the {what}.", code="file-missing"
        )
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    try:
        if len(content) > _MOST_BYTES:
            raise ValueError("it is too large")
        note = msgspec.json.decode(content, type=kind)
        for card in _cards_of(note):
            for label in card.classes:
                _check_class(label)
        if isinstance(note, Roster):
            _check_roster(note)
        return note
    except (ValueError, msgspec.MsgspecError) as error:
        reason = " ".join(str(error).split())
        raise ModelFileError(
            f"{shown(path)} is not a {what} of visvm, or it was altered ({escaped(reason)}). "
            "Ask for it once more.",
            code="masked-note",
        ) from error


def write_note(path: Path, note: Card | Key | Roster | Reveal) -> None:
    """Write a note in one step; a key may be read by its owner only."""
    try:
        with replacing(path) as file:
            if isinstance(note, Key):
                Path(file.name).chmod(0o600)
            file.write(msgspec.json.format(msgspec.json.encode(note)) + b"\n")
    except OSError as error:
        raise ModelFileError(
            f"{shown(path)} cannot be written: {error.strerror}. Choose another place.",
            code="file-unwritable",
        ) from error


def _cards_of(note: Card | Key | Roster | Reveal) -> list[Card]:
    if isinstance(note, Roster):
        return note.cards
    return [note] if isinstance(note, Card) else [note.card] if isinstance(note, Key) else []


def _check_class(label: Label) -> None:
    """Refuse what no class may be called, and numbers too large; a ValueError says what."""
    if check_label(label, "a class") != label:
        raise ValueError(f"the class {label!r:.80} is written in another way than visvm does")
    if isinstance(label, int) and abs(label) >= 2**63:
        raise ValueError(f"the class {label} is too large a number")


def _check_roster(roster: Roster) -> None:
    """Check what must hold in a roster; a ValueError says what does not."""
    for what in ("site", "name", "public"):
        if len({getattr(card, what) for card in roster.cards}) < len(roster.cards):
            raise ValueError(f"two sites have one {what}")
    if len(roster.cards) < 2:
        raise ValueError("it has fewer than two sites")
    if len({card.model for card in roster.cards}) > 1:
        raise ValueError("its sites are of different models")
    if len({type(label) for label in roster.classes}) != 1:
        raise ValueError("its classes are neither all names nor all numbers")
    if roster.classes != sorted({label for card in roster.cards for label in card.classes}):
        raise ValueError("its classes are not those of its cards, sorted")
    if not (abs(roster.scale.exponent) <= 600 and 0 < roster.scale.fraction_bits <= 60):
        raise ValueError("its unit is impossible")


# Making them


def join(site: Model, name: str, classes: Iterable[Label]) -> Key:
    """Return a new key for a site; its card names these classes.

    Parameters
    ----------
    site : Model
        As ``export_for_site`` wrote it.
    name : str
        By which people know the site.
    classes : iterable of str or int
        That the site may have: at least those that it will send.
    """
    require_cryptography()
    if site.site is None:
        raise InputError(
            "This model is not for a site. Make one with 'visvm export MODEL --for-site SITE'.",
            code="masked-no-site",
        )
    labels = sorted({check_label(label, "a class of the card") for label in classes})
    if not labels:
        raise InputError("The card names no class. Name at least one.", code="masked-no-class")
    private = secrets.token_bytes(32)
    card = Card(name[:100], site.site, public_of(private).hex(), ModelId.of(site), labels)
    return Key(private.hex(), card)


def require_member(key: Key, roster: Roster) -> None:
    """Refuse a roster that does not have the very card of this key."""
    if key.card not in roster.cards:
        raise InputError(
            f"The roster does not have the card of {escaped(key.card.name)} as this key made it. "
            "Ask the collector which card was used.",
            code="masked-not-in-roster",
        )


def make_roster(model: Model, cards: Sequence[Card], most_images: int) -> Roster:
    """Return the roster of a round.

    Parameters
    ----------
    model : Model
        With sums, of which the unit of the words is taken: the size of its features.
    cards : sequence of Card
    most_images : int
        How many images all sites may have together, about.
    """
    if not 1 <= most_images <= 2**40:
        raise InputError("--most-images must be from 1 to 2^40.", code="masked-most-images")
    for card in cards:
        if card.model != ModelId.of(model):
            raise IncompatibleModelError(
                f"{escaped(card.name)} joined for another model. Export a file for it from this "
                "one.",
                code="masked-other-model",
            )
    classes = {label for card in cards for label in card.classes}
    labels: list[Label] = sorted(classes, key=lambda label: (str(type(label)), label))
    scale = Scale.of(largest_mean_square(model.head.statistics), most_images)
    roster = Roster(sorted(cards, key=lambda card: card.site), labels, scale)
    try:
        _check_roster(roster)
    except ValueError as error:
        raise InputError(
            f"These cards make no roster: {error}. Give one card of every site.",
            code="masked-cards",
        ) from error
    return roster
