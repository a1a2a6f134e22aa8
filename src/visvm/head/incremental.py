"""What the scikit-learn estimators share: a thin shell around a frozen ``Head``.

A shell checks what comes in. It holds its parameters and one ``Head``, which it replaces only when
everything has succeeded: an error leaves the estimator exactly as it was.
"""

from abc import ABCMeta, abstractmethod
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_is_fitted,
    validate_data,
)

from visvm.errors import IncompatibleModelError, InputError
from visvm.head.calibration import log_likelihoods, probabilities
from visvm.head.checks import (
    Labels,
    as_input_error,
    check_finite,
    check_labels,
    check_one_kind,
    check_scale,
    check_weights,
)
from visvm.head.head import Head
from visvm.head.lift import KernelMap
from visvm.head.products import Array
from visvm.head.scatter import DenseScatter
from visvm.head.selection import RidgeTrial
from visvm.head.settle import HeadOptions, settle
from visvm.head.statistics import Statistics

_MOST_SCORED = 200  # samples of a session, as if they had not been learned

_Weighted = tuple[Array, Labels, Array]  # features, labels and weights


class IncrementalClassifier(ClassifierMixin, BaseEstimator, metaclass=ABCMeta):  # type: ignore[misc]
    """What both estimators share: everything except their parameters."""

    head_: Head | None = None
    likelihoods_: Array | None = None
    _merged: tuple[tuple[Array, float], ...] = ()  # others' likelihoods, and their weight in ours

    @abstractmethod
    def _options(self) -> HeadOptions:
        """Return the parameters as the head takes them."""

    # Public methods

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from the start, and drop what was learned before.

        Parameters
        ----------
        X : array of shape (n, n_features)
        y : array of shape (n,)
            Labels, all strings or all integers.
        sample_weight : array of shape (n,), optional
            How often each sample counts.
        """
        return self._begin(X, self._samples(X, y, sample_weight, base=True), learn=True)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn one more session: any mix of old and new classes, without announcing them.

        The first session is the base session, which settles λ (and, in ``VisClassifier``, the
        layers and the mixer).

        Parameters
        ----------
        X : array of shape (n, n_features)
        y : array of shape (n,)
            Labels, all strings or all integers, of the same kind in every session.
        classes : array, optional
            Not needed. If given, every label of `y` must be among them.
        sample_weight : array of shape (n,), optional
            How often each sample counts.
        """
        base = self.head_ is None
        samples = self._samples(X, y, sample_weight, base=base)
        strange = [] if classes is None else np.setdiff1d(samples[1], np.asarray(classes)).tolist()
        if strange:
            raise InputError(
                f"Label {strange[0]!r} is not among the classes given. Add it, or give no classes.",
                code="class-unannounced",
            )
        if base:
            return self._begin(X, samples, learn=True)
        head = self._head().learned(*samples).renewed().solved()
        noted = self._calibrated(head, samples, base=False)
        if noted is not self.likelihoods_:  # what came before counts half
            self._merged = tuple((theirs, 0.5 * weight) for theirs, weight in self._merged)
        self.head_, self.likelihoods_ = head, noted
        return self

    def settle(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Make the base session's choices, learn nothing yet, and drop what was learned before.

        Parameters are those of ``fit``. Afterwards no class is known; λ and the kernel map (and, in
        ``VisClassifier``, the layers and the mixer) are settled.
        """
        return self._begin(X, self._samples(X, y, sample_weight, base=True), learn=False)

    def accumulate(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Add samples to the sums, and solve later: until then scores stay as they are.

        Parameters are those of ``partial_fit``; the base session's choices must have been made.
        """
        head = self._head()
        grown = head.learned(*self._samples(X, y, sample_weight))
        self.head_ = replace(grown, classes=head.classes, coefficients=head.coefficients)
        return self

    def solve(self) -> Self:
        """Find the coefficients that belong to the sums, and λ anew where ``partial_fit`` would."""
        head = self._head()
        self.head_ = Head.of(head.settled, head.statistics).renewed().solved()
        return self

    def merge(self, *others: Self) -> Self:
        """Add what other models have learned, as if this one had; their order does not matter.

        Parameters
        ----------
        *others : same type as self
            Fitted with the same kernel map (and, in ``VisClassifier``, the same mixer). They do
            not change.
        """
        self.head_ = self._head().merged(*map(self._head_of, others)).solved()
        theirs = [each.likelihoods_ for each in others if each.likelihoods_ is not None]
        noted = theirs if self.likelihoods_ is None else [self.likelihoods_, *theirs]
        self.likelihoods_ = np.sum(noted, axis=0) if noted else None
        self._merged = (*self._merged, *((each, 1.0) for each in theirs))
        return self

    def unmerge(self, other: Self) -> Self:
        """Remove what was merged, as if it had never been; λ and the mixer stay.

        Parameters
        ----------
        other : same type as self
            As it was merged. It does not change.

        Raises
        ------
        NeverLearnedError
            It has more samples of a class than this model, or other ones.
        """
        self.head_ = self._head().unmerged(self._head_of(other)).solved()
        for place, (theirs, weight) in enumerate(self._merged):
            if other.likelihoods_ is None or self.likelihoods_ is None:
                break
            if np.array_equal(theirs, other.likelihoods_):
                self.likelihoods_ = self.likelihoods_ - weight * theirs
                self._merged = self._merged[:place] + self._merged[place + 1 :]
                break
        return self

    def forget(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Forget samples, given as they were learned; λ and the mixer stay.

        Raises
        ------
        NeverLearnedError
            More samples of a class are to be forgotten than were learned, or other ones.
        """
        self.head_ = self._head().forgotten(*self._samples(X, y, sample_weight)).solved()
        return self

    def rename_class(self, old: Any, new: Any, *, merge: bool = False) -> Self:
        """Give a class another name, and keep what was learned of it.

        Parameters
        ----------
        old, new : str or int
            A class that is known, and a name of the same kind.
        merge : bool, default=False
            If the new name is a class already, make both one, as if their samples had been learned
            under one label.
        """
        head = self._fitted()
        new = check_labels([new], 1, type(self).__name__).tolist()[0]
        if merge and new != old and new in head.classes.tolist():
            head = self._head()  # solved again, so under the current parameters
        self.head_ = head.renamed(old, new, merge=merge)
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """Return scores, (n, n_classes): near +1 for the class of a sample, near -1 for others.

        They are in the order of `classes_`; of two classes only the second's are returned, (n,).
        """
        scores = self._scores(X)
        return scores[:, 1] if scores.shape[1] == 2 else scores

    def leave_one_out_scores(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Return the scores, (n, C), that learned samples would get from a model without them.

        Each sample is left out alone, in closed form; λ and the mixer stay as they are. Samples are
        given as they were learned, each counted once. All are lifted together: give some hundreds
        at a time.
        """
        features, labels, _ = self._samples(X, y, None)
        return self._fitted().leave_one_out_scores(features, labels)

    def predict(self, X: ArrayLike) -> Labels:
        """Return the labels, (n,), of the classes with the highest scores for X."""
        return np.asarray(self.classes_[self._scores(X).argmax(axis=1)])

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the probabilities of `classes_` for X, (n, C).

        They are a softmax of the scores. Its steepness is chosen by up to 200 samples of each
        ``fit`` and ``partial_fit``, scored as if they had not been learned; older sessions count
        half each time. Samples that weigh less than 1 are left out of that.
        """
        scores = self._scores(X)
        if self.likelihoods_ is None:  # nothing was measured
            return softmax(scores, axis=1)
        return probabilities(scores, self.likelihoods_)

    # What is known after the base session

    @property
    def classes_(self) -> Labels:
        """Labels seen so far, sorted, (C,)."""
        return self._fitted().classes

    @property
    def coefficients_(self) -> Array:
        """W̃, (D + 1, C), the bias last."""
        coefficients = self._fitted().coefficients
        assert coefficients is not None
        return coefficients

    @property
    def statistics_(self) -> Statistics:
        """The sums: all that is remembered of the data."""
        return self._fitted().statistics

    @property
    def ridge_(self) -> float:
        """λ in use."""
        return self._fitted().settled.ridge

    @property
    def ridge_path_(self) -> list[RidgeTrial]:
        """Every λ the first session tried, with its error and accuracy; empty where λ was given."""
        return list(self._fitted().settled.ridge_path)

    @property
    def kernel_map_(self) -> KernelMap:
        """The random kernel map."""
        return self._fitted().settled.lift.kernel_map

    # How a session goes

    def _begin(self, X: ArrayLike, samples: _Weighted, *, learn: bool) -> Self:
        """Make the base session's choices and, if asked to, learn the samples."""
        features, labels, weight = samples
        head = Head.blank(settle(features, labels, self._checked_options(), weight=weight))
        noted = None
        if learn:
            head = head.learned(*samples).solved()
            noted = self._calibrated(head, samples, base=True)
        validate_data(self, X, skip_check_array=True)  # notes the number and names of columns
        self.head_, self.likelihoods_, self._merged = head, noted, ()
        return self

    def _calibrated(self, head: Head, samples: _Weighted, *, base: bool) -> Array | None:
        """Return the log-likelihoods noted, (49,), after a session that learned these samples."""
        features, labels, weight = samples
        whole = np.flatnonzero(weight >= 1.0)  # of others, no whole one can be left out
        old = None if base else self.likelihoods_
        dense = isinstance(head.statistics.scatter, DenseScatter)
        if not len(whole) or (dense and old is not None and not self._grew(head)):
            return old
        order = np.random.default_rng(0).permutation(len(whole))[:_MOST_SCORED]
        chosen = np.sort(whole[order])
        scores = head.leave_one_out_scores(features[chosen], labels[chosen])
        targets = np.searchsorted(head.classes, labels[chosen])
        noted = log_likelihoods(scores, targets, weight[chosen])
        return noted if old is None else noted + 0.5 * old

    def _grew(self, head: Head) -> bool:
        """Return whether many classes have come, or λ is another: else dense sums cost too much."""
        before = self._fitted()
        many = len(head.classes) > 1.2 * len(before.classes)
        return many or head.settled.ridge != before.settled.ridge

    def _fitted(self) -> Head:
        check_is_fitted(self)
        assert self.head_ is not None
        return self.head_

    def _head(self) -> Head:
        """Return what was learned so far, under the current parameters."""
        return self._fitted().with_options(self._checked_options())

    def _checked_options(self) -> HeadOptions:
        options = self._options()
        options.check(type(self).__name__)
        return options

    def _head_of(self, other: Self) -> Head:
        if type(other) is not type(self):
            raise IncompatibleModelError(
                f"A {type(self).__name__} and a {type(other).__name__} cannot be merged. "
                "Train both with the same estimator.",
                code="merge-type",
            )
        return other._fitted()

    def _scores(self, X: ArrayLike) -> Array:
        head = self._fitted()
        if not len(head.classes):
            raise NotFittedError(
                f"This {type(self).__name__} knows no class. Call partial_fit with samples first."
            )
        return head.scores(self._features(X))

    # Checks

    def _features(self, X: ArrayLike, *, base: bool = False) -> Array:
        """Return checked features; after the base session, with the columns that it had."""
        with as_input_error("features-invalid"):
            features = check_array(
                X, dtype=[np.float64, np.float32], ensure_all_finite=False, estimator=self
            )
        if not base:
            with as_input_error("columns-mismatch"):
                validate_data(self, X, reset=False, skip_check_array=True)
        check_finite(features)
        return np.asarray(features)

    def _samples(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, *, base: bool = False
    ) -> _Weighted:
        """Return checked samples, without those of weight zero."""
        classes = np.empty(0) if base else self.classes_
        features = self._features(X, base=base)
        labels = check_labels(y, len(features), type(self).__name__)
        check_one_kind(classes, labels)
        check_scale(features)
        if sample_weight is None:
            return features, labels, np.ones(len(features))
        with as_input_error("weights-invalid"):
            weight = _check_sample_weight(
                sample_weight, features, dtype=np.float64, ensure_non_negative=True
            )
        counted = weight > 0
        if not counted.any():  # newer versions of scikit-learn have refused this already
            raise InputError(
                "All values of sample_weight are 0. Leave it out to count each sample once.",
                code="weights-invalid",
            )
        check_weights(weight[counted])
        return features[counted], labels[counted], weight[counted]
