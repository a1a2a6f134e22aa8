"""What a head has learned, as one frozen value, and everything that can be done with it.

Learning, merging, unmerging, forgetting and renaming each return a new ``Head``, so an error
changes nothing. Features and labels must have been checked, as ``incremental.py`` does.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

from visvm.errors import InputError
from visvm.head import memory
from visvm.head.checks import Labels, check_one_kind, suggestion
from visvm.head.evidence import ridge_by_evidence
from visvm.head.lift import Features
from visvm.head.products import Array, product
from visvm.head.scatter import DenseScatter, ThinScatter
from visvm.head.selection import RidgeBasis
from visvm.head.settle import HeadOptions, Settled
from visvm.head.solver import leverage, solve
from visvm.head.statistics import Statistics
from visvm.head.texts import TextSamples

_HELD = 1e-7  # of the samples' own scatter: what is further from their span was not learned


@dataclass(frozen=True, eq=False)
class Head:
    """Layer features → scores of the classes learned so far.

    Attributes
    ----------
    settled : Settled
        What the base session decided.
    classes : array of shape (C,)
        Labels, sorted.
    sums : Statistics or None
        All that is remembered of the data. They never change. Without them, the head can only
        predict.
    coefficients : array of shape (D + 1, C), or None
        W̃, the bias last; None until the sums are solved.

    Examples
    --------
    >>> from visvm.head.settle import settle
    >>> X, labels = np.array([[0.0], [1.0], [5.0], [6.0]]), np.array(["low", "low", "high", "high"])
    >>> blank = Head.blank(settle(X, labels, HeadOptions(n_components=None, fused=False)))
    >>> head = blank.learned(X, labels).solved()
    >>> head.classes[head.scores(np.array([[0.5], [5.5]])).argmax(axis=1)].tolist()
    ['low', 'high']
    >>> len(blank.classes)
    0
    """

    settled: Settled
    classes: Labels
    sums: Statistics | None
    coefficients: Array | None

    def __post_init__(self) -> None:
        for array in (self.classes, self.coefficients):
            if array is not None:
                array.flags.writeable = False

    @classmethod
    def blank(cls, settled: Settled) -> "Head":
        """Return a head that knows no class yet."""
        return cls.of(settled, Statistics(settled.lift.width)).solved()

    @classmethod
    def of(cls, settled: Settled, sums: Statistics) -> "Head":
        """Return a head with these sums, which must not change any more, not solved yet."""
        return cls(settled, sums.classes, sums, None)

    @property
    def statistics(self) -> Statistics:
        """The sums, of a head that must have them."""
        assert self.sums is not None, "a head without sums can only predict"
        return self.sums

    def with_options(self, options: HeadOptions) -> "Head":
        """Return the same head under other options; its coefficients wait for ``solved``."""
        return replace(self, settled=self.settled.with_options(options))

    # Changes

    def solved(self) -> "Head":
        """Return the head with the coefficients that belong to its sums."""
        sums, settled = self.solution_sums(), self.settled
        if not len(sums.classes):
            return replace(self, coefficients=np.empty((settled.lift.width + 1, 0)))
        return replace(self, coefficients=solve(sums, settled.ridge, settled.options.svm_cost))

    def solution_sums(self) -> Statistics:
        """Return what the coefficients are solved from: the sums, and the texts of their classes.

        Without texts they are the sums themselves.
        """
        sums, settled = self.statistics, self.settled
        if settled.texts is None or not len(sums.classes):
            return sums
        if isinstance(sums.scatter, ThinScatter):
            with suppress(LinAlgError):  # so that only what is new costs anything, as without texts
                sums.scatter.factored(settled.ridge / settled.options.svm_cost)
        return settled.texts.beside(sums, settled.lift.kernel_map.lift)

    def with_texts(self, texts: TextSamples) -> "Head":
        """Return the head with these texts, not solved yet; they take the place of older ones."""
        joined = texts.joined(self.settled.texts)
        return Head.of(replace(self.settled, texts=joined), self.statistics)

    @contextmanager
    def factor_kept(self) -> Iterator[None]:
        """Have ``solved`` and ``leave_one_out_scores`` share a factor, within this block.

        Thin sums keep theirs anyway, and texts do not use it. The sums must not change meanwhile.
        """
        settled, scatter = self.settled, self.statistics.scatter
        with ExitStack() as held:
            if isinstance(scatter, DenseScatter) and scatter.cross.shape[1]:
                with suppress(LinAlgError):  # then solving raises λ
                    shift = settled.ridge / settled.options.svm_cost
                    held.enter_context(scatter.factored(shift))
            yield

    def renewed(self) -> "Head":
        """Return the head with λ chosen anew from its sums if that is due, not solved yet.

        It is due whenever twice as many images are in the sums as λ was chosen by, if the first
        session had fewer than ten classes. Only sessions ask: merging, unmerging and forgetting
        leave λ as it is, so that what was merged can be taken out again exactly.
        """
        sums, settled = self.statistics, self.settled
        if not settled.renews_ridge(sums.n_samples, len(sums.classes)):
            return self
        ridge = ridge_by_evidence(sums, settled.ridge, settled.options.svm_cost)
        basis = RidgeBasis(round(sums.n_samples), len(sums.classes))
        return Head.of(replace(settled, ridge=ridge, ridge_basis=basis), sums)

    def learned(self, X: Features, labels: Labels, weight: Array | None = None) -> "Head":
        """Return the head that has learned these samples too, not solved yet.

        `X` has shape (n, n_inputs); `weight` is how often each sample counts, above zero, (n,).
        """
        self.require_memory(len(X), len(np.unique(labels)))
        self.statistics.require_alike(len(X) if weight is None else float(weight.sum()))
        sums = self.statistics.copy()
        accumulate(sums, self.settled, X, labels, weight)
        return Head.of(self.settled, sums)

    def merged(self, *others: "Head") -> "Head":
        """Return the head that has learned what the others have too, not solved yet.

        Raises
        ------
        IncompatibleModelError
            They have another kernel map or mixer.
        """
        for other in others:  # before anything is copied
            self.check_merge(other)
        sums = self.statistics.copy()
        for other in others:
            Head.of(self.settled, sums).check_merge(other)  # with what the ones before it added
            sums.merge(other.statistics)
        return Head.of(self.settled, sums)

    def unmerged(self, other: "Head") -> "Head":
        """Return the head without what was merged from another, not solved yet.

        Raises
        ------
        NeverLearnedError
            The other has more samples of a class than this one, or other ones.
        """
        self.check_merge(other, forgets=True)
        sums = self.statistics.copy()
        sums.unmerge(other.statistics)
        sums.scatter.check(self.statistics.square_sum())
        return Head.of(self.settled, sums)

    def forgotten(self, X: Features, labels: Labels, weight: Array | None = None) -> "Head":
        """Return the head that has never learned these samples, not solved yet.

        Raises
        ------
        NeverLearnedError
            More samples of a class are given than were learned, or other ones.
        """
        weight = np.ones(len(X)) if weight is None else weight
        check_one_kind(self.classes, labels)
        self.require_memory(len(X), 0, forgets=True)
        self.statistics.require_learned(labels, weight)
        sums = self.statistics.copy()
        for rows in memory.chunks(len(X), self.settled.lift.width):
            sums.subtract(self.settled.lift(X[rows]), labels[rows], weight[rows])
        sums.scatter.check(self.statistics.square_sum())
        return Head.of(self.settled, sums)

    def renamed(self, old: Any, new: Any, *, merge: bool = False) -> "Head":
        """Return the head in which a class has another name.

        Parameters
        ----------
        old, new : str or int
            A class that is known, and a name of the same kind.
        merge : bool, default=False
            If the new name is a class already, make both one and solve; this needs the sums.

        Raises
        ------
        InputError
            The class is unknown, or the new name is taken or of the other kind.
        """
        names = self.classes.tolist()
        if old not in names:
            raise InputError(
                f"There is no class {old!r}. {suggestion(old, self.classes)}", code="class-unknown"
            )
        if new in names and not merge:
            raise InputError(
                f"There is a class {new!r} already. Choose another name, or make both one "
                "with --merge (merge=True).",
                code="class-exists",
            )
        check_one_kind(self.classes, np.array([new]))
        renamed = np.array([new if name == old else name for name in names])
        settled = self.settled.renamed(old, new)
        if new in names and new != old:
            return Head.of(settled, self.statistics.renamed(renamed)).solved()
        sums = None if self.sums is None else self.sums.renamed(renamed)
        order = np.argsort(renamed, kind="stable")
        columns = None if self.coefficients is None else self.coefficients[:, order]
        return Head(settled, renamed[order], sums, columns)

    # Scores

    def scores(self, X: Features) -> Array:
        """Return the scores, (n, C), of layer features, (n, n_inputs)."""
        return scores_of(X, self.settled.lift, self._coefficients())

    def looks(self, X: Features) -> tuple[Array, Array]:
        """Return the scores, (n, C), and the features again from φ (``KernelMap.back``), (n, d)."""
        weights, lift = self._coefficients(), self.settled.lift
        scores = np.empty((len(X), weights.shape[1]))
        features = np.empty((len(X), lift.kernel_map.n_inputs))
        for rows in memory.chunks(len(X), lift.width):
            lifted = lift(X[rows])
            scores[rows] = product(lifted, weights[:-1]) + weights[-1]
            features[rows] = lift.kernel_map.recovered(lifted)
        return scores, features

    def recovered(self, X: Features) -> Array:
        """Return the features again from φ, (n, d), of layer features, (n, n_inputs)."""
        lift, back = self.settled.lift, self.settled.lift.kernel_map.recovered
        parts = (back(lift(X[rows])) for rows in memory.chunks(len(X), lift.width))
        return np.vstack([np.empty((0, lift.kernel_map.n_inputs)), *parts])

    def holds(self, X: Features) -> NDArray[np.bool_] | None:
        """Return which samples, (n, n_inputs), are in the sums, to rounding, (n,).

        What is in them is in the span of the factor. None where there is no factor any more: among
        more samples than D, any could be.
        """
        if not isinstance(self.statistics.scatter, ThinScatter):
            return None
        sums = self.statistics.copy()  # whose factor is not that of λ
        if not sums.scatter.n_rows:
            return np.zeros(len(X), dtype=bool)
        shift = _HELD * sums.scatter.trace() / sums.n_samples
        found = np.zeros(len(X), dtype=bool)
        for rows in memory.chunks(len(X), self.settled.lift.width):
            follows = leverage(sums, self.settled.lift(X[rows])[:, None], shift, 1.0)
            # of what is learned at most 1; of all else what is outside, over the shift
            found[rows] = follows[:, 0, 0] < 1.5
        return found

    def leave_one_out_scores(self, X: Features, labels: Labels) -> Array:
        """Return the scores, (n, C), that learned samples would get from a head without them.

        Each is left out alone, in closed form; λ and the mixer stay as they are. Samples are given
        as they were learned, each counted once, (n, n_inputs); or in several views, (n, V,
        n_inputs), each of which counted 1/V, and of which the first is scored without all of them.
        All are lifted together: give some hundreds.
        """
        lift, ridge = self.settled.lift, self.settled.ridge
        svm_cost, coefficients = self.settled.options.svm_cost, self._coefficients()
        self.statistics.require_learned(labels, np.ones(len(labels)))
        sums = self.solution_sums()
        # Below this λ, 1 - h of samples that can all be fitted drowns in rounding, and λ makes no
        # difference.
        least = 1e-6 * svm_cost * sums.square_sum() / sums.n_samples
        if ridge < least and sums.n_samples <= lift.width:
            # a copy, as the factor kept with the sums is that of λ
            sums, ridge = sums.copy(), least
            coefficients = solve(sums, ridge, svm_cost)
        rows = X.reshape(-1, X.shape[-1])
        grouped = (len(X), len(rows) // max(len(X), 1), -1)  # V views of each
        scores = scores_of(rows, lift, coefficients).reshape(grouped)
        signs = np.where(self.classes == labels[:, None], 1.0, -1.0)
        # y - f' = (I - H)⁻¹(y - f), by the eigenvectors of H
        shares, axes = np.linalg.eigh(leverage(sums, lift(rows).reshape(grouped), ridge, svm_cost))
        along = axes.swapaxes(1, 2) @ (signs[:, None] - scores)
        along /= np.maximum(1.0 - shares.clip(0.0), 1e-9)[..., None]
        return np.asarray(signs - (axes[:, :1] @ along)[:, 0])

    def _coefficients(self) -> Array:
        assert self.coefficients is not None, "a head gives scores after solved() only"
        return self.coefficients

    # Checks

    def check_merge(self, other: "Head", *, forgets: bool = False) -> None:
        """Refuse a head whose sums cannot be added to these, or taken away.

        It must have the same kernel map, mixer and kind of labels, and memory must hold both.
        """
        self.settled.lift.require_same(other.settled.lift)
        added = other.statistics
        if len(added.classes):
            check_one_kind(self.statistics.classes, added.classes)
        dense = isinstance(added.scatter, DenseScatter)
        longest = added.classes.itemsize
        self.require_memory(
            added.scatter.n_rows, len(added.classes), longest, dense=dense, forgets=forgets
        )

    def require_memory(
        self,
        n_new: int,
        n_classes: int,
        label_bytes: int = 0,
        *,
        dense: bool = False,
        forgets: bool = False,
    ) -> None:
        """Refuse `n_new` rows with at most `n_classes` new classes if memory cannot hold them.

        `label_bytes` is the size of the longest label of those.
        """
        scatter, after = self.statistics.scatter, self.statistics.n_samples + n_new
        sizes = memory.SessionSizes(
            n_new=n_new,
            n_rows=scatter.n_rows,
            is_dense=dense or isinstance(scatter, DenseScatter),
            n_classes=n_classes + len(self.statistics.classes),
            n_inputs=self.settled.lift.kernel_map.n_inputs,
            width=self.settled.lift.width,
            forgets=forgets,
            label_bytes=max(label_bytes, self.statistics.classes.itemsize),
            renews=not forgets and self.settled.renews_ridge(after, 2),
            texts=self.settled.texts is not None,
        )
        memory.require_memory(sizes, self.settled.options.memory_limit)


def as_rows(X: Features, labels: Labels) -> tuple[Features, Labels, Array]:
    """Return the views of samples as samples of their own, with their weights.

    Parameters
    ----------
    X : array of shape (n, V, n_inputs)
        Features of the V views of each.
    labels : array of shape (n,)

    Returns
    -------
    features, labels, weight : arrays of shape (nV, n_inputs), (nV,) and (nV,)
        The views of a sample count 1/V each, so that together they count as one.
    """
    n, n_views = X.shape[:2]
    weight = np.full(n * n_views, 1.0 / n_views)
    return X.reshape(n * n_views, -1), np.repeat(labels, n_views), weight


def accumulate(
    sums: Statistics, settled: Settled, X: Features, labels: Labels, weight: Array | None = None
) -> None:
    """Add samples to sums in place, some at a time; parameters as in ``Head.learned``."""
    weight = np.ones(len(X)) if weight is None else weight
    sums.reserve(len(X))
    sums.announce(labels)
    for rows in memory.chunks(len(X), settled.lift.width + len(sums.classes)):
        sums.add(settled.lift(X[rows]), labels[rows], weight[rows])


def scores_of(features: Any, lift: Callable[[Any], Array], coefficients: Array) -> Array:
    """Return the scores, (n, C), of features, (n, d), lifted some at a time.

    The last row of the coefficients, (D + 1, C), is the bias.
    """
    scores = np.empty((len(features), coefficients.shape[1]))
    for rows in memory.chunks(len(features), len(coefficients) - 1):
        scores[rows] = product(lift(features[rows]), coefficients[:-1])
    scores += coefficients[-1]
    return scores
