"""Secure aggregation: several sites' sums, of which a collector sees only the total.

A round goes by files. Every site **joins**: it makes a key, which it keeps, and a card. The
collector makes a **roster** of all cards. Every site sends **masked** sums (``masks.py``), which
add up to the **total**. Where sites drop out, each of the others **reveals** the masks that it
shares with them, once, so that a site's own sums stay masked as long as they are never sent.

It holds against a collector who follows the protocol and reads all it gets. It does not hold
against a collector who lies about who dropped out, or against one who makes up sites; SECURITY.md
has the list.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from visvm.errors import (
    IncompatibleModelError,
    InputError,
    MemoryLimitError,
    ModelFileError,
    escaped,
    shown,
)
from visvm.head.head import Head
from visvm.head.memory import available_bytes, human_bytes
from visvm.model.changes import now
from visvm.model.container import Words, altered, content_digest, locked, opened, replace_file
from visvm.model.header import SiteId
from visvm.model.labels import some_of
from visvm.model.masks import (
    add_mask,
    as_statistics,
    as_words,
    n_words,
    pair_seed,
    require_cryptography,
    seed_check,
)
from visvm.model.rounds import (
    Hex32,
    Key,
    ModelId,
    Reveal,
    Roster,
    listed_names,
    read_note,
    require_member,
)
from visvm.model.sites import SiteStatistics
from visvm.model.state import MergedSite, Model


class _MaskedHeader(msgspec.Struct, frozen=True):
    """What a file of masked sums says; `checks` are those of the seeds, by the other site's id."""

    kind: str
    round: Hex32
    site: SiteId
    checks: dict[SiteId, Hex32]


# What sites do


def masked_once(key: Key, roster: Roster, sums: SiteStatistics) -> Key:
    """Return the key that remembers which sums it masks in this round; no others may be."""
    digest = sums.model.head.statistics.digest()
    if key.masked.get(roster.id, digest) != digest:
        raise InputError(
            "Other sums were masked for this round already; both together would give sums away. "
            "Send those, or join a new round.",
            code="masked-twice",
        )
    return msgspec.structs.replace(key, masked={**key.masked, roster.id: digest})


def mask(key: Key, roster: Roster, sums: SiteStatistics) -> "MaskedSums":
    """Return a site's sums, masked; ``masked_once`` must have allowed it."""
    require_cryptography()
    require_member(key, roster)
    if ModelId.of(sums.model) != roster.model or sums.site != key.card.site:
        raise IncompatibleModelError(
            f"{sums.named}these are not sums of site {key.card.site} for the roster's model. "
            "Learn them with the file that joined.",
            code="masked-other-site",
        )
    if unknown := sorted(set(sums.counts) - set(roster.classes), key=str):
        raise InputError(
            f"The roster does not have the class {some_of(unknown)}. Leave those photos out, or "
            "join a new round with them.",
            code="masked-class-unknown",
        )
    if sums.model.sites:  # the collector could not see them, and might add them twice
        raise InputError(
            f"{sums.named}these sums hold those of other sites. Give the site's own only; every "
            "other site takes part in the round.",
            code="masked-holds-sites",
        )
    _require_room(sums.model.head.settled.lift.width, len(roster.classes))
    statistics, n_sites = sums.model.head.statistics, len(roster.cards)
    words = as_words(statistics, np.array(roster.classes), roster.scale, n_sites)
    seeds = _seeds(key, roster)
    for other, seed in seeds.items():
        add_mask(words, seed, subtract=key.card.site > other)
    checks = {other: seed_check(seed) for other, seed in seeds.items()}
    return MaskedSums(roster.id, key.card.site, checks, words)


def _require_room(width: int, n_classes: int) -> None:
    """Refuse a roster with more classes than this machine has memory for, before any is taken."""
    needed, room = 8 * n_words(width, n_classes), available_bytes()
    if room is not None and needed > room:
        raise MemoryLimitError(
            f"Masked sums of the roster's {n_classes} classes need {human_bytes(needed)}; "
            f"{human_bytes(room)} are free. Ask the collector why there are so many.",
            code="memory-limit",
        )


def _seeds(key: Key, roster: Roster) -> dict[str, bytes]:
    """Return the seeds that a site shares with every other one, by its id."""
    private, round_id = bytes.fromhex(key.private), bytes.fromhex(roster.id)
    try:
        return {
            card.site: pair_seed(private, bytes.fromhex(card.public), round_id)
            for card in roster.cards
            if card.site != key.card.site
        }
    except ValueError as error:  # a public key that would make the secret known to all
        raise InputError(
            "A card of the roster has a key that hides nothing. Do not take part.",
            code="masked-weak-key",
        ) from error


def reveal(key: Key, roster: Roster, dropped: Sequence[str]) -> tuple[Key, Reveal]:
    """Return what undoes the masks shared with sites that dropped out, and the key that knows it.

    Parameters
    ----------
    key : Key
    roster : Roster
    dropped : sequence of str
        Their ids. Only one set of them is ever revealed in a round.
    """
    require_cryptography()
    require_member(key, roster)
    gone = sorted(set(dropped))
    if not gone or key.card.site in gone:
        raise InputError(
            "Name the sites that dropped out, and not this one.", code="masked-reveal-self"
        )
    if len(roster.cards) - len(gone) < 2:
        raise InputError(
            "Only this site would be left, and its sums would be known. Join a new round.",
            code="masked-alone",
        )
    if key.revealed.get(roster.id, gone) != gone:
        raise InputError(
            "Masks were revealed for other sites of this round already; more would give sums "
            "away. Join a new round.",
            code="masked-revealed-twice",
        )
    seeds = _seeds(key, roster)
    after = msgspec.structs.replace(key, revealed={**key.revealed, roster.id: gone})
    return after, Reveal(roster.id, key.card.site, {site: seeds[site].hex() for site in gone})


@dataclass(frozen=True, eq=False)
class MaskedSums:
    """A site's masked sums: words that look uniform without those of the other sites.

    Attributes
    ----------
    round, site : str
        Ids.
    checks : dict
        Of the seeds in it, by the other site's id (``masks.seed_check``).
    words : array of shape (n_words,)
    """

    round: str
    site: str
    checks: Mapping[str, str]
    words: Words

    def _packed(self) -> tuple[dict[str, Any], dict[str, Words]]:
        header = _MaskedHeader("masked", self.round, self.site, dict(self.checks))
        return msgspec.to_builtins(header), {"words": self.words}

    def save(self, path: Path) -> None:
        """Write them to a file."""
        with locked(path):
            replace_file(path, *self._packed())

    def are_in(self, path: Path) -> bool:
        """Whether a file has this very content."""
        with opened(path) as file:
            return file.digest == content_digest(*self._packed())

    @classmethod
    def load(cls, path: Path) -> "MaskedSums":
        """Read them from a file, checked."""
        with opened(path) as file:
            if file.header.get("kind") != "masked":
                raise ModelFileError(
                    f"{shown(path)} does not hold masked sums. Give what 'visvm masked sums' "
                    "wrote.",
                    code="masked-file",
                )
            try:
                header = msgspec.convert(file.header, _MaskedHeader)
                words = file.words("words")
            except (KeyError, TypeError, msgspec.ValidationError) as error:
                raise altered(path, "its parts do not fit together") from error
        return cls(header.round, header.site, header.checks, words)


# What the collector does


def total(model: Model, roster: Roster, files: Sequence[Path]) -> SiteStatistics:
    """Return the sums of all sites together, as those of one site that holds the others.

    Parameters
    ----------
    model : Model
        That the sums are for.
    roster : Roster
    files : sequence of paths
        Masked sums, and reveals where sites dropped out. One file is held at a time.
    """
    require_cryptography()
    if ModelId.of(model) != roster.model:
        raise IncompatibleModelError(
            "The roster is for another model. Give the one that its sites were exported from.",
            code="masked-other-model",
        )
    reveals = [read_note(path, Reveal) for path in files if _is_note(path)]
    classes, width = np.array(roster.classes), model.head.settled.lift.width
    shape = (n_words(width, len(classes)),)
    sum_of_words = np.empty(0, dtype=np.uint64)
    checks: dict[str, Mapping[str, str]] = {}
    for path in files:
        if not _is_note(path):
            given = MaskedSums.load(path)
            _require_of_round(roster, given, checks, shown(path))
            if given.words.shape != shape:
                raise altered(path, "words has the wrong shape")
            if not checks:  # as much memory as a file has, not as a roster asks for
                sum_of_words = np.zeros(shape, dtype=np.uint64)
            sum_of_words += given.words
            checks[given.site] = given.checks
    _require_reveals(roster, checks, reveals)
    _require_pairs(roster, checks)
    for each in reveals:
        for other, seed in each.seeds.items():
            add_mask(sum_of_words, bytes.fromhex(seed), subtract=each.site < other)
    sums = as_statistics(sum_of_words, classes, width, roster.scale) if checks else None
    if sums is None:
        raise ModelFileError(
            "The masks do not cancel: a file was altered. Ask the sites for theirs once more.",
            code="masked-left",
        )
    head = Head.of(model.head.settled.bare, sums)
    # by which a merge sees that a site is in two totals; how many images it has, nobody knows
    inside = tuple(
        MergedSite(site, now(), 0, roster.id, tuple(sums.classes.tolist()))
        for site in sorted(checks)
    )
    return SiteStatistics(Model(model.encoder, head, site=roster.id[:16], sites=inside))


def _is_note(path: Path) -> bool:
    """Whether a file is JSON; one of masked sums begins with a multiple of eight."""
    if not path.is_file():
        raise ModelFileError(
            f"There is no file {shown(path)}. Correct the path.", code="file-missing"
        )
    with path.open("rb") as file:
        return file.read(1) == b"{"


def _require_of_round(
    roster: Roster, given: MaskedSums, found: Mapping[str, object], name: str
) -> None:
    if given.round != roster.id or given.site not in roster.names:
        raise InputError(
            f"{name} is of another round. Give the file that was masked with this roster.",
            code="masked-other-round",
        )
    if given.site in found:
        who = escaped(roster.names[given.site])
        raise InputError(
            f"{name} is of {who}, whose sums are given already. Leave one out.",
            code="masked-site-twice",
        )


def _require_reveals(
    roster: Roster, checks: Mapping[str, Mapping[str, str]], reveals: Sequence[Reveal]
) -> None:
    """Refuse unless every site that sent sums reveals its masks with exactly those that did not."""
    names, missing = roster.names, sorted(roster.names.keys() - checks.keys())
    if len({each.site for each in reveals}) < len(reveals):
        raise InputError(
            "Two reveals are of one site. Give one of every site.", code="masked-site-twice"
        )
    for each in reveals:
        if each.round != roster.id or each.site not in checks:
            raise InputError(
                f"A reveal is of another round, or of a site whose sums are not given "
                f"({escaped(names.get(each.site, each.site))}). Leave it out.",
                code="masked-other-round",
            )
        if sorted(each.seeds) != missing:
            given = listed_names(names.get(site, site) for site in each.seeds)
            raise InputError(
                f"{escaped(names[each.site])} revealed its masks with {given}, so exactly their "
                "sums must be left out. Leave them out, and delete them unread.",
                code="masked-reveal-other",
            )
        for other, seed in each.seeds.items():
            if checks[each.site].get(other) != seed_check(bytes.fromhex(seed)):
                raise InputError(
                    f"What {escaped(names[each.site])} revealed is not in its sums. Ask for both "
                    "once more.",
                    code="masked-pair",
                )
    silent = sorted(checks.keys() - {each.site for each in reveals})
    if missing and silent:
        gone = listed_names(names[site] for site in missing)
        raise InputError(
            f"The sums of {gone} are missing. Wait for them; or, if they never come, ask "
            f"{listed_names(names[site] for site in silent)} for what 'visvm masked reveal' "
            "writes.",
            code="masked-missing",
        )


def _require_pairs(roster: Roster, checks: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse sites that do not share the mask between them."""
    names = roster.names
    for site, own in checks.items():
        for other in checks.keys() - {site}:
            if own.get(other) is None or own[other] != checks[other].get(site):
                raise InputError(
                    f"{escaped(names[site])} and {escaped(names[other])} did not use one mask. "
                    "Ask both for their sums once more.",
                    code="masked-pair",
                )
