"""Sums of others in a model: added, and taken out again; each change returns another model."""

from collections.abc import Iterable, Iterator, Set
from dataclasses import replace

import numpy as np

from visvm.errors import IncompatibleModelError, InputError, NeverLearnedError
from visvm.head.head import Head
from visvm.head.statistics import Statistics
from visvm.model import changes
from visvm.model.checks import check_sums
from visvm.model.holder import ModelHolder
from visvm.model.labels import Label, check_label, is_forgotten
from visvm.model.results import SessionReport
from visvm.model.sites import SiteStatistics, require_merged_sites, require_new_sites
from visvm.model.state import EncoderId, Model


def site_of(other: object) -> SiteStatistics:
    """Return the sums of a classifier, or sums as they are."""
    if isinstance(other, SiteStatistics):
        return other
    if not isinstance(other, ModelHolder):
        raise InputError(
            f"{other!r:.80} cannot be merged. Load it as an ImageClassifier or SiteStatistics, or "
            "use merge_files.",
            code="merge-kind",
        )
    if other.model_ is None:
        fact = "One of the models to merge has learned nothing. Let it learn first."
        raise IncompatibleModelError(fact, code="merge-empty")
    changes.require_sums(other.model_, "merge")
    return SiteStatistics(other.model_)


def merged(model: Model, others: Iterable[SiteStatistics], *, consume: bool = False) -> Model:
    """Return the model that has learned what others have, too; their order does not matter.

    Parameters
    ----------
    model : Model
    others : iterable of SiteStatistics
        One is held at a time.
    consume : bool, default=False
        Add to the sums of `model` itself, which is of no use afterwards: a matrix less in memory.
    """
    changes.require_sums(model, "merge")
    own = {SiteStatistics(model).site} if model.counts else set()
    grown = replace(model, site=model.site if own else None)
    sums = model.head.statistics if consume else model.head.statistics.copy()
    for other in others:
        try:
            grown = _with_sums_of(grown, sums, other, own)
        except IncompatibleModelError as error:
            raise IncompatibleModelError(f"{other.named}{error}", code=error.code) from error
        del other  # before the next one is read
    return grown.with_head(Head.of(grown.head.settled, sums).solved())


def _with_sums_of(model: Model, sums: Statistics, other: SiteStatistics, own: set[str]) -> Model:
    """Add the sums of a site to `sums`, which are the model's own, and note whose they are."""
    if not other.counts:
        raise IncompatibleModelError(
            "There is nothing to merge: one of the models has learned nothing. "
            "Let it learn first, or leave it out.",
            code="merge-empty",
        )
    _require_named(other.model)
    _require_same_encoder(model.encoder, other.model.encoder)
    for label in other.counts.keys() - set(sums.classes.tolist()):
        if not is_forgotten(label):
            check_label(label, f"a class of {other.named.removesuffix(': ') or 'the other model'}")
    added = other.entries(changes.now())
    require_new_sites(added, own, {each.id for each in model.sites})
    here = Head.of(model.head.settled, sums)
    here.check_merge(other.model.head)
    check_sums(other.model.head, here)
    known = {label for label in sums.classes.tolist() if not is_forgotten(label)}
    sums.merge(other.model.head.statistics)
    new = []
    for each in other.model.sessions:
        if any(each.is_same_as(mine) for mine in model.sessions):
            continue
        new.append(replace(each.among(known), site=each.site or other.site))
        known |= {*each.new_classes, *each.returning_classes}
    head, theirs = model.head, other.model.head.settled.texts
    grown = replace(
        model,
        head=head if theirs is None else replace(head, settled=head.settled.joined(theirs)),
        calibration=model.calibration.plus(other.model.calibration),
        sessions=_numbered((*model.sessions, *new)),
        sites=(*model.sites, *added),
    )
    return changes.with_event(grown, "merge", n_images=other.n_images, site=other.site)


def _require_named(given: Model) -> None:
    """Refuse a total of masked sums that does not say which sites are in it, as older ones."""
    if given.site is not None and not (given.sessions or given.sites or given.learned):
        raise IncompatibleModelError(
            "This total of masked sums does not say whose they are, so they could be added twice: "
            "it is of an older version. Make it again with 'visvm masked total'.",
            code="merge-nameless",
        )


def _require_same_encoder(mine: EncoderId, theirs: EncoderId) -> None:
    pairs = {
        "encoder weights": (mine.digest, theirs.digest),
        "transforms": (mine.transform, theirs.transform),
        "views": (mine.views, theirs.views),
    }
    for what, (here, there) in pairs.items():
        if here != there:
            raise IncompatibleModelError(
                f"The models have different {what} ({here:.12} here, {there:.12} there). "
                "Grow both from copies of one model.",
                code="merge-encoder",
            )


def unmerged(model: Model, other: SiteStatistics) -> Model:
    """Return the model without a site, as if it had never been merged."""
    changes.require_sums(model, "unmerge")
    gone = other.entries(changes.now())
    require_merged_sites(gone, model.sites)
    mine = next(each for each in model.sites if each.id == other.site)
    theirs = Head.of(
        other.model.head.settled, other.model.head.statistics.renamed(np.array(mine.labels))
    )
    try:
        head = model.head.unmerged(theirs).solved()
    except NeverLearnedError as error:
        raise NeverLearnedError(
            f"Some images of site {other.site} were already forgotten one by one ({error}). "
            "Learn them again first.",
            code="site-incomplete",
        ) from error
    ids = {each.id for each in gone}
    left = replace(
        model.with_head(head),
        sessions=_numbered(_without(ids, model.sessions)),
        sites=tuple(each for each in model.sites if each.id not in ids),
        learned=(),
    )
    measured = model.calibration.plus(other.model.calibration, -mine.calibration_weight)
    n_classes = min(model.calibration.n_classes, len(left.classes))
    left = replace(left, calibration=replace(measured, n_classes=n_classes))
    return changes.with_event(left, "unmerge", n_images=other.n_images, site=other.site)


def _without(sites: Set[str], sessions: Iterable[SessionReport]) -> Iterator[SessionReport]:
    """Give the sessions that are left without those of sites: what those had brought is new."""
    seen: set[Label] = set()  # in the sessions that are left
    gone: set[Label] = set()  # only in the others
    for each in sessions:
        classes = {*each.new_classes, *each.returning_classes}
        if each.site in sites:
            gone |= classes - seen
            continue
        brought = tuple(label for label in each.returning_classes if label not in seen)
        seen |= classes
        gone -= classes
        yield replace(
            each,
            new_classes=(*each.new_classes, *brought),
            returning_classes=tuple(
                label for label in each.returning_classes if label not in brought
            ),
            n_classes=max(each.n_classes - len(gone), len(classes)),
        )


def _numbered(sessions: Iterable[SessionReport]) -> tuple[SessionReport, ...]:
    """Return the sessions, numbered from 1."""
    return tuple(replace(each, session=number) for number, each in enumerate(sessions, start=1))
