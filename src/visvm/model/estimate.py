"""How accurate a model is by a session's own photos, without test images."""

from dataclasses import dataclass, replace

from visvm.model.formats import percent
from visvm.model.labels import Label


@dataclass(frozen=True)
class ClassEstimate:
    """How the photos of one class would be recognised, had each not been learned."""

    label: Label
    n: int
    accuracy: float


@dataclass(frozen=True)
class SessionEstimate:
    """An accuracy without test images: each photo is scored as if it had not been learned.

    Attributes
    ----------
    n : int
        Photos of the session that were scored, at most 500 of it; a class's only one is not.
    accuracy : float
        Share of them recognised, from 0 to 1, among all classes known.
    worst : tuple of ClassEstimate
        The five worst classes, as far as photos of them were not recognised.
    n_wrong : int
        Photos among them whose label looks wrong.
    n_again : int
        Photos of the whole session that it has twice under the same label.
    n_learned : int
        Photos that were learned before, as far as the sums or digests (``remembered.py``) tell.
    n_compared : int
        Of how many photos these are; 0 where they are of those scored.
    """

    n: int
    accuracy: float
    worst: tuple[ClassEstimate, ...] = ()
    n_wrong: int = 0
    n_again: int = 0
    n_learned: int = 0
    n_compared: int = 0

    def renamed(self, old: Label, new: Label) -> "SessionEstimate":
        """Return the estimate in which a class has another name."""
        worst = (replace(each, label=new) if each.label == old else each for each in self.worst)
        return replace(self, worst=tuple(worst))

    @property
    def counts(self) -> tuple[int, ...]:
        """Every number of photos in it."""
        worst = (each.n for each in self.worst)
        found = self.n_wrong, self.n_again, self.n_learned
        return (self.n, *found, self.n_compared, *worst)


def estimate_notes(estimate: SessionEstimate | None) -> list[str]:
    r"""Return what a session's photos say about the model, and about themselves, in sentences.

    Examples
    --------
    >>> worst = (ClassEstimate("wren", 4, 0.5),)
    >>> print(*estimate_notes(SessionEstimate(40, 0.9, worst, n_wrong=1)), sep="\n")
    Estimated accuracy among all classes known: 90.0 %, by 40 photos, each left out in turn.
    Worst: wren 50 %.
    1 of 40 photos looks mislabelled; a check names it.
    """
    if estimate is None:
        return []
    by = f"{percent(estimate.accuracy)}, by {estimate.n} photos, each left out in turn"
    notes = [f"Estimated accuracy among all classes known: {by}."]
    if estimate.worst:
        worst = ", ".join(f"{each.label} {percent(each.accuracy, 0)}" for each in estimate.worst)
        notes.append(f"Worst: {worst}.")
    n_wrong, n_again = estimate.n_wrong, estimate.n_again
    looks, are = "looks" if n_wrong == 1 else "look", "is" if n_again == 1 else "are"
    doubts = [f"{n_wrong} of {estimate.n} photos {looks} mislabelled"] if n_wrong else []
    doubts += [f"{n_again} {are} there twice"] if n_again else []
    if doubts:
        which = "it" if n_wrong + n_again == 1 else "them"
        notes.append(f"{' and '.join(doubts)}; a check names {which}.")
    if estimate.n_learned:
        were = "was" if estimate.n_learned == 1 else "were"
        of = estimate.n_compared or estimate.n
        fact = f"{estimate.n_learned} of {of} photos {were} learned before"
        notes.append(f"{fact}, and count twice now; undo, if that is not meant.")
    return notes
