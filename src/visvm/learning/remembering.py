"""Photos of a session → the photos that a model remembers by digests, and which it knew before."""

from dataclasses import replace

from visvm.learning.checking import contents_of
from visvm.learning.work import Learned, Work
from visvm.model.estimate import SessionEstimate
from visvm.model.remembered import RememberedPhotos
from visvm.model.state import Model

Contents = list[bytes | None]


def contents_to_remember(model: Model | None, work: Work) -> Contents | None:
    """Return the digests of a session's files; None where none are to be remembered."""
    wanted = work.remember
    if wanted is None:
        wanted = model is not None and model.photos is not None
    return contents_of(work.images.sources) if wanted else None


def remembered(
    before: RememberedPhotos | None,
    contents: Contents | None,
    learned: Learned,
    estimate: SessionEstimate | None,
) -> tuple[RememberedPhotos | None, SessionEstimate | None]:
    """Return the photos remembered after a session, and its estimate with those known before.

    Parameters
    ----------
    before : RememberedPhotos or None
    contents : list or None
        What ``contents_to_remember`` returned.
    learned : Learned
    estimate : SessionEstimate or None
    """
    if contents is None:
        return None, estimate
    photos = RememberedPhotos.none() if before is None else before
    readable = [each for place, each in enumerate(contents) if place not in learned.unreadable]
    n_known = sum(photos.known(readable))
    if estimate is not None and n_known > estimate.n_learned:
        estimate = replace(estimate, n_learned=n_known, n_compared=len(readable))
    return photos.plus(readable), estimate
