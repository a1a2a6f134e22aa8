"""What the two estimators share: how a session is learned, merged, unmerged and forgotten, and how scores are made.

Each of these happens on a draft that takes the estimator's place only when all has gone well, so
that an error leaves the estimator exactly as it was.
"""

import copy
from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from visvm.errors import IncompatibleModelError, InputError
from visvm.head import memory
from visvm.head.checks import (
    as_input_error,
    check_finite,
    check_labels,
    check_one_kind,
    is_count,
    is_positive,
    require,
    seed_of,
)
from visvm.head.kernel_map import KernelMap
from visvm.head.predictor import scores_of
from visvm.head.scatter import DenseScatter, ThinScatter
from visvm.head.solver import leverage, solve
from visvm.head.statistics import Statistics

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Labels = NDArray[np.generic]


class IncrementalClassifier(ClassifierMixin, BaseEstimator, metaclass=ABCMeta):  # type: ignore[misc]
    """What both estimators share: everything but how features are fused."""

    n_components: int | None
    ridge: float | str
    svm_cost: float
    random_state: Any
    max_selection_samples: int | None
    memory_limit: float | None
    statistics_: Statistics
    _listener: Callable[[str, int, int], None] | None = None

    # Public methods

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from nothing: whatever was learned before is dropped.

        Parameters
        ----------
        X : array of shape (n, n_features)
        y : array of shape (n,)
            Labels, all strings or all integers.
        sample_weight : array of shape (n,), optional
            How often each sample counts.

        Returns
        -------
        self
        """
        draft = self._blank()
        draft._learn(X, y, sample_weight, base=True)
        return self._commit(draft)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn one more session: any mix of old and new classes, none of which need be announced.

        The first session is the base session, in which λ (and in ``VisClassifier`` the layers and
        the mixer) are settled.

        Parameters
        ----------
        X : array of shape (n, n_features)
        y : array of shape (n,)
            Labels, all strings or all integers, of the same kind in every session.
        classes : array, optional
            Not needed. Where it is given, every label of `y` must be among them.
        sample_weight : array of shape (n,), optional
            How often each sample counts.

        Returns
        -------
        self
        """
        draft = copy.copy(self)
        draft._learn(X, y, sample_weight, base=not hasattr(self, "statistics_"), classes=classes)
        return self._commit(draft)

    def settle(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Make the base session's choices, and learn nothing yet; whatever was learned before is dropped.

        ``fit`` is ``settle``, ``accumulate`` and ``solve``: three steps for data that come in
        pieces, of which the first may see a sample.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.

        Returns
        -------
        self
            Which knows no class, and whose λ, kernel map (and, in ``VisClassifier``, layers and
            mixer) are settled.
        """
        draft = self._blank()
        draft._validate_parameters()
        draft._begin(*draft._validate_samples(X, y, sample_weight, base=True))
        draft._solve()
        return self._commit(draft)

    def accumulate(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Add samples to the sums, and solve later: until then scores stay as they are.

        Parameters
        ----------
        X, y, sample_weight
            As in ``partial_fit``; the base session's choices must have been made.

        Returns
        -------
        self
        """
        check_is_fitted(self, "statistics_")
        features, labels, weight = self._validate_samples(X, y, sample_weight, base=False)
        self._check_memory(len(features), len(np.unique(labels)))
        self._accumulate(features, labels, weight)
        return self

    def solve(self) -> Self:
        """Find the coefficients that belong to the sums.

        Returns
        -------
        self
        """
        check_is_fitted(self, "statistics_")
        self._solve()
        return self

    def merge(self, *others: Self) -> Self:
        """Add what other models have learned, as if this one had learned it too; their order does not matter.

        Parameters
        ----------
        *others : same type as self
            Fitted with the same kernel map (and, in ``VisClassifier``, the same mixer). They are
            left as they are.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        for other in others:
            self._check_merge(other)
        draft = copy.copy(self)
        draft.statistics_ = self.statistics_.copy()
        for other in others:
            draft._add_sums(other)
        draft._solve()
        return self._commit(draft)

    def unmerge(self, other: Self) -> Self:
        """Take out again what was merged, as if it had never been. λ and the mixer stay as they are.

        Parameters
        ----------
        other : same type as self
            As it was merged. It is left as it is.

        Returns
        -------
        self

        Raises
        ------
        NeverLearnedError
            It has more samples of a class than this model, or other ones.
        """
        check_is_fitted(self)
        self._check_merge(other, forgets=True)
        draft = copy.copy(self)
        draft.statistics_ = self.statistics_.copy()
        draft.statistics_.unmerge(other.statistics_)
        draft.statistics_.scatter.check(self.statistics_.square_sum())
        draft._solve()
        return self._commit(draft)

    def forget(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Take samples out again, as if they had never been learned. λ and the mixer stay as they are.

        Parameters
        ----------
        X, y, sample_weight
            As they were learned.

        Returns
        -------
        self

        Raises
        ------
        NeverLearnedError
            More samples of a class are to be forgotten than were learned, or other ones.
        """
        check_is_fitted(self)
        self._validate_parameters()
        draft = copy.copy(self)
        features, labels, weight = draft._validate_samples(X, y, sample_weight, base=False)
        draft._check_memory(len(features), 0, forgets=True)
        self.statistics_.require_learned(labels, weight)
        draft.statistics_ = self.statistics_.copy()
        for rows in memory.chunks(len(features), self.kernel_map_.width):
            draft.statistics_.subtract(draft._lift(features[rows]), labels[rows], weight[rows])
        draft.statistics_.scatter.check(self.statistics_.square_sum())
        draft._solve()
        return self._commit(draft)

    def rename_class(self, old: Any, new: Any, *, merge: bool = False) -> Self:
        """Give a class another name; what it has learned stays.

        Parameters
        ----------
        old, new : str or int
            A class that is known, and a name of the same kind.
        merge : bool, default=False
            If the new name is a class already, make both one, as if their samples had been learned
            under one label.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        names = self.classes_.tolist()
        if old not in names:
            known = ", ".join(map(repr, names[:5])) + (", …" if len(names) > 5 else "")
            raise InputError(
                f"the class to rename must be known; {old!r} is not: the model knows {known}"
            )
        if new in names and not merge:
            raise InputError(
                f"the new name must not be taken; {new!r} is a class already: choose another, or merge both"
            )
        renamed = check_labels(
            [new if name == old else name for name in names], len(names), type(self).__name__
        )
        check_one_kind(self.classes_, renamed)
        draft, order = copy.copy(self), np.argsort(renamed, kind="stable")
        if hasattr(self, "statistics_"):
            draft.statistics_ = self.statistics_.copy()
            draft.statistics_.rename(renamed)
        if new in names and new != old:
            draft._solve()
        else:
            draft.classes_, draft.coefficients_ = renamed[order], self.coefficients_[:, order]
        return self._commit(draft)

    def decision_function(self, X: ArrayLike) -> Array:
        """Scores: near +1 for the class a sample belongs to, near -1 for the others.

        Parameters
        ----------
        X : array of shape (n, n_features)

        Returns
        -------
        array of shape (n, n_classes), or (n,) for two classes
            In the order of `classes_`; for two classes, the score of the second.
        """
        scores = self._scores(X)
        return scores[:, 1] if scores.shape[1] == 2 else scores

    def leave_one_out_scores(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Scores that samples which were learned would get from a model that had not learned them.

        Each sample is left out by itself, in closed form; λ and the mixer stay as they are.

        Parameters
        ----------
        X : array of shape (n, n_features)
        y : array of shape (n,)
            As they were learned, each counted once. All are lifted together: give some hundreds at
            a time.

        Returns
        -------
        array of shape (n, n_classes)
            In the order of `classes_`.
        """
        check_is_fitted(self)
        features, labels, _ = self._validate_samples(X, y, None, base=False)
        self.statistics_.require_learned(labels, np.ones(len(labels)))
        statistics, ridge, scores = self.statistics_, self.ridge_, self._scores(features)
        # Below this λ, 1 - h of samples that can all be fitted drowns in rounding, and λ makes no
        # difference.
        least = 1e-6 * self.svm_cost * statistics.square_sum() / statistics.n_samples
        if ridge < least and statistics.n_samples <= self.kernel_map_.width:
            # a copy, as the factor kept with the sums is that of λ
            statistics, ridge = statistics.copy(), least
            scores = scores_of(features, self._lift, solve(statistics, ridge, self.svm_cost))
        signs = np.where(self.classes_ == labels[:, None], 1.0, -1.0)
        rest = 1.0 - leverage(statistics, self._lift(features), ridge, self.svm_cost)
        return np.asarray(signs - (signs - scores) / np.maximum(rest, 1e-9)[:, None])

    def predict(self, X: ArrayLike) -> Labels:
        """Label of the class with the highest score.

        Parameters
        ----------
        X : array of shape (n, n_features)

        Returns
        -------
        array of shape (n,)
        """
        scores = self._scores(X)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    # How a session goes

    def _learn(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        *,
        base: bool,
        classes: ArrayLike | None = None,
    ) -> None:
        """Learn one session, on a draft."""
        self._validate_parameters()
        features, labels, weight = self._validate_samples(X, y, sample_weight, base=base)
        present = np.unique(labels)
        if classes is not None and len(strange := np.setdiff1d(present, np.asarray(classes))):
            raise InputError(
                f"labels must be among the classes given; {strange[0]!s} is not: add it, or give none"
            )
        if base:
            self._begin(features, labels, weight)
        else:
            self._check_memory(len(features), len(present))
            self.statistics_ = self.statistics_.copy()
        self._accumulate(features, labels, weight)
        self._solve()

    def _blank(self) -> Self:
        """A copy that has learned nothing."""
        draft = copy.copy(self)
        for name in [name for name in vars(draft) if name.endswith("_")]:
            delattr(draft, name)
        return draft

    def _adopt(self, other: Self) -> None:
        """Take over what another has learned, keeping one's own parameters."""
        self.__dict__ |= {name: value for name, value in vars(other).items() if name.endswith("_")}

    def _begin(self, features: Array, labels: Labels, weight: Array) -> None:
        """Make the base session's choices, on a draft."""
        present, targets = np.unique(labels, return_inverse=True)
        self.statistics_ = Statistics(self.n_components or self._fused_width())
        self._check_memory(len(features), len(present), base=True)
        self.seed_ = seed_of(self.random_state)
        self.kernel_map_ = KernelMap(self._fused_width(), self.n_components, self.seed_)
        self._settle(features, targets, weight)

    def _accumulate(self, features: Array, labels: Labels, weight: Array) -> None:
        """Add samples to the sums, which must be this object's own."""
        self.statistics_.reserve(len(features))
        for rows in memory.chunks(len(features), self.kernel_map_.width):
            self.statistics_.add(self._lift(features[rows]), labels[rows], weight[rows])

    def _add_sums(self, other: Self) -> None:
        """Add the sums of another model to this one's, which must be its own; solving is left to the caller."""
        self._check_merge(other)
        self.statistics_.merge(other.statistics_)

    def _report_step(self, step: str, done: int, total: int) -> None:
        """Tell whoever set `_listener` how far a session is."""
        if self._listener is not None:
            self._listener(step, done, total)

    def _solve(self) -> None:
        if self.ridge != "auto":
            self.ridge_ = float(self.ridge)
        self.classes_ = self.statistics_.classes
        if not len(self.classes_):
            self.coefficients_ = np.empty((self.kernel_map_.width + 1, 0))
            return
        self.coefficients_ = solve(self.statistics_, self.ridge_, self.svm_cost)

    def _commit(self, draft: Self) -> Self:
        self.__dict__ = draft.__dict__
        return self

    def _scores(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        if not len(self.classes_):
            raise NotFittedError(
                f"this {type(self).__name__} has forgotten every class: learn one first"
            )
        features = self._validate_features(X, base=False)
        return scores_of(features, self._lift, self.coefficients_)

    # What differs between the two

    @abstractmethod
    def _fused_width(self) -> int:
        """Width of the fused features, known once `n_features_in_` is."""

    @abstractmethod
    def _settle(self, X: Array, targets: Indices, weight: Array) -> None:
        """Make the base session's choices."""

    @abstractmethod
    def _lift(self, X: Array) -> Array:
        """Lifted features, (n, D), of samples, (n, n_features)."""

    def _selects(self) -> bool:
        """Whether the base session chooses anything on a split."""
        return self.ridge == "auto"

    def _mixer_floats(self, n_new: int) -> int:  # noqa: ARG002
        """Numbers held while a mixer is trained on so many samples."""
        return 0

    def _digests(self) -> tuple[str, ...]:
        return (self.kernel_map_.digest,)

    # Checks

    def _validate_parameters(self) -> None:
        require(
            self.n_components is None
            or (is_count(self.n_components) and self.n_components < 2**31),
            self,
            "n_components",
            "a whole number from 1 to 2147483647, or None",
        )
        automatic = isinstance(self.ridge, str) and self.ridge == "auto"
        require(
            automatic or is_positive(self.ridge), self, "ridge", "'auto' or a finite number above 0"
        )
        require(is_positive(self.svm_cost), self, "svm_cost", "a finite number above 0")
        limit = self.max_selection_samples
        require(
            limit is None or is_count(limit),
            self,
            "max_selection_samples",
            "a whole number of at least 1, or None",
        )
        require(
            self.memory_limit is None or is_positive(self.memory_limit),
            self,
            "memory_limit",
            "a number of bytes above 0, or None",
        )

    def _validate_features(self, X: ArrayLike, *, base: bool) -> Array:
        with as_input_error():
            features = np.asarray(
                validate_data(
                    self, X, reset=base, dtype=[np.float64, np.float32], ensure_all_finite=False
                )
            )
        check_finite(features)
        return features

    def _validate_samples(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, *, base: bool
    ) -> tuple[Array, Labels, Array]:
        """Checked features, labels and weights of the samples with weight above zero."""
        features = self._validate_features(X, base=base)
        labels = check_labels(y, len(features), type(self).__name__)
        if not base:
            check_one_kind(self.classes_, labels)
        if sample_weight is None:
            return features, labels, np.ones(len(features))
        with as_input_error():
            weight = _check_sample_weight(
                sample_weight, features, dtype=np.float64, ensure_non_negative=True
            )
        counted = weight > 0
        if not counted.any():
            raise InputError(
                "sample_weight must be above 0 for some sample; all are 0: leave it out to count each once"
            )
        return features[counted], labels[counted], weight[counted]

    def _check_merge(self, other: Self, *, forgets: bool = False) -> None:
        """Refuse a model whose sums cannot be added to this one's, or taken away."""
        self._validate_parameters()
        if type(other) is not type(self):
            raise IncompatibleModelError(
                f"models to merge must be of one type; got {type(self).__name__} and {type(other).__name__}: "
                "train both with the same estimator"
            )
        check_is_fitted(other)
        parts = {
            "kernel map": "use the same n_components and random_state",
            "mixer": "start from copies of one fitted model",
        }
        for (what, how), mine, theirs in zip(
            parts.items(), self._digests(), other._digests(), strict=False
        ):
            if mine != theirs:
                raise IncompatibleModelError(
                    f"models to merge must share the {what}; theirs is {theirs[:12]}, this one's {mine[:12]}: {how}"
                )
        added = other.statistics_
        if len(added.classes):
            check_one_kind(self.statistics_.classes, added.classes)
        n_rows = added.scatter.n_rows if isinstance(added.scatter, ThinScatter) else 0
        self._check_memory(
            n_rows,
            len(added.classes),
            dense=isinstance(added.scatter, DenseScatter),
            forgets=forgets,
        )

    def _check_memory(
        self,
        n_new: int,
        n_classes: int,
        *,
        base: bool = False,
        dense: bool = False,
        forgets: bool = False,
    ) -> None:
        """Refuse what will not fit: `n_new` rows with at most `n_classes` new classes."""
        scatter, limit = self.statistics_.scatter, self.max_selection_samples
        session = memory.Session(
            n_new=n_new,
            n_rows=scatter.n_rows if isinstance(scatter, ThinScatter) else 0,
            is_dense=dense or isinstance(scatter, DenseScatter),
            n_classes=n_classes + len(self.statistics_.classes),
            n_inputs=self._fused_width(),
            width=self.statistics_.n_features,
            n_selection=min(n_new, max(limit or n_new, 5 * n_classes))
            if base and self._selects()
            else 0,
            n_mixer=self._mixer_floats(n_new) if base else 0,
            forgets=forgets,
        )
        memory.require(session, self.memory_limit)
