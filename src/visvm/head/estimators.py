"""The scikit-learn estimators: thin shells around a frozen ``Head``, which check what comes in.

``IncrementalLSSVC`` is kernel map and LS-SVM; ``VisClassifier`` is the paper's whole method, with
residual fusion before it. A shell holds its parameters and one ``Head``, which is replaced only
when all has gone well: an error leaves the estimator exactly as it was.
"""

from abc import ABCMeta, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_is_fitted,
    validate_data,
)

from visvm.errors import IncompatibleModelError, InputError
from visvm.head.checks import (
    Labels,
    as_input_error,
    check_finite,
    check_labels,
    check_one_kind,
)
from visvm.head.fusion import MixerOptions, ResidualMixer
from visvm.head.head import Head
from visvm.head.kernel_map import KernelMap
from visvm.head.products import Array
from visvm.head.selection import LayerTrial, RidgeTrial
from visvm.head.settle import MIXER_OPTIONS, HeadOptions, settle
from visvm.head.statistics import Statistics

_DTYPES = [np.float64, np.float32]


class IncrementalClassifier(ClassifierMixin, BaseEstimator, metaclass=ABCMeta):  # type: ignore[misc]
    """What both estimators share: everything but their parameters."""

    head_: Head | None = None

    @abstractmethod
    def _options(self) -> HeadOptions:
        """Return the parameters as the head takes them."""

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
        features, labels, weight = self._base_samples(X, y, sample_weight)
        return self._begin(X, features, labels, weight, learn=True)

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
        base = self.head_ is None
        check = self._base_samples if base else self._samples
        features, labels, weight = check(X, y, sample_weight)
        strange: Any = [] if classes is None else np.setdiff1d(labels, np.asarray(classes))
        if len(strange):
            raise InputError(
                f"Label {strange[0]!s} is not among the classes given. Add it, or give none.",
                code="class-unannounced",
            )
        if base:
            return self._begin(X, features, labels, weight, learn=True)
        self.head_ = self._head().learned(features, labels, weight).solved()
        return self

    def settle(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Make the base session's choices, and learn nothing yet; what was learned is dropped.

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
        features, labels, weight = self._base_samples(X, y, sample_weight)
        return self._begin(X, features, labels, weight, learn=False)

    def merge(self, *others: Self) -> Self:
        """Add what other models have learned, as if this one had; their order does not matter.

        Parameters
        ----------
        *others : same type as self
            Fitted with the same kernel map (and, in ``VisClassifier``, the same mixer). They are
            left as they are.

        Returns
        -------
        self
        """
        head = self._head()
        self.head_ = head.merged(*map(self._head_of, others)).solved()
        return self

    def unmerge(self, other: Self) -> Self:
        """Take out again what was merged, as if it had never been. λ and the mixer stay.

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
        self.head_ = self._head().unmerged(self._head_of(other)).solved()
        return self

    def forget(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Take samples out again, as if they had never been learned. λ and the mixer stay.

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
        head = self._head()
        self.head_ = head.forgotten(*self._samples(X, y, sample_weight)).solved()
        return self

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
        head = self._head()
        check_labels([new], 1, type(self).__name__)
        self.head_ = head.renamed(old, new, merge=merge)
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """Return scores: near +1 for the class a sample belongs to, near -1 for the others.

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
        """Return the scores that learned samples would get from a model without them.

        Each sample is left out alone, in closed form; λ and the mixer stay as they are.

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
        features, labels, _ = self._samples(X, y, None)
        return self._fitted().leave_one_out_scores(features, labels)

    def predict(self, X: ArrayLike) -> Labels:
        """Return the label of the class with the highest score.

        Parameters
        ----------
        X : array of shape (n, n_features)

        Returns
        -------
        array of shape (n,)
        """
        scores = self._scores(X)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    # What is known once something was learned

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
        """Every λ tried, with its mean squared error and accuracy; empty where λ was given."""
        return list(self._fitted().settled.ridge_path)

    @property
    def kernel_map_(self) -> KernelMap:
        """The random kernel map."""
        return self._fitted().settled.lift.kernel_map

    # How a session goes

    def _begin(
        self, X: ArrayLike, features: Array, labels: Labels, weight: Array, *, learn: bool
    ) -> Self:
        """Make the base session's choices and, if asked to, learn the samples."""
        head = Head.blank(settle(features, labels, self._options(), weight=weight))
        if learn:
            head = head.learned(features, labels, weight).solved()
        with as_input_error():
            validate_data(self, X, skip_check_array=True)  # notes the number and names of columns
        self.head_ = head
        return self

    def _fitted(self) -> Head:
        check_is_fitted(self)
        assert self.head_ is not None
        return self.head_

    def _head(self) -> Head:
        """Return what was learned so far, under the parameters of now, which may have changed."""
        head, options = self._fitted(), self._options()
        options.check(type(self).__name__)
        return head.with_options(options)

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
                f"This {type(self).__name__} has forgotten every class. Let it learn one first."
            )
        return head.scores(self._features(X))

    # Checks

    def _features(self, X: ArrayLike) -> Array:
        """Return checked features of as many columns as were learned."""
        with as_input_error():
            features = validate_data(self, X, reset=False, dtype=_DTYPES, ensure_all_finite=False)
        check_finite(features)
        return np.asarray(features)

    def _base_samples(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Array, Labels, Array]:
        """Check parameters, then samples as ``_samples``, whatever was learned before."""
        self._options().check(type(self).__name__)
        with as_input_error():
            features = check_array(X, dtype=_DTYPES, ensure_all_finite=False, estimator=self)
        check_finite(features)
        return self._weighted(features, y, sample_weight)

    def _samples(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Array, Labels, Array]:
        """Return checked features, labels and weights of the samples with weight above zero."""
        check_is_fitted(self)
        samples = self._weighted(self._features(X), y, sample_weight)
        check_one_kind(self.classes_, samples[1])
        return samples

    def _weighted(
        self, features: Array, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Array, Labels, Array]:
        labels = check_labels(y, len(features), type(self).__name__)
        if sample_weight is None:
            return features, labels, np.ones(len(features))
        with as_input_error():
            weight = _check_sample_weight(
                sample_weight, features, dtype=np.float64, ensure_non_negative=True
            )
        counted = weight > 0
        if not counted.any():
            raise InputError(
                "All values of sample_weight are 0. Leave it out to count each sample once.",
                code="weights-zero",
            )
        return features[counted], labels[counted], weight[counted]


class IncrementalLSSVC(IncrementalClassifier):
    """Incremental least-squares SVM on a fixed random kernel map.

    Learning in sessions gives the same model as learning everything at once, whatever the split,
    the order or the mix of classes.

    Parameters
    ----------
    n_components : int or None, default=15000
        D, the width of the random map; None is the linear LS-SVM.
    ridge : "auto" or float, default="auto"
        λ; "auto" chooses it in the first session.
    svm_cost : float, default=10.0
        C_svm; only λ / C_svm matters.
    random_state : int, RandomState or None, default=0
        Decides the random map and the split by which λ is chosen.
    max_selection_samples : int or None, default=5000
        λ is chosen on no more than about this many samples of the first session; None means all.
    memory_limit : float or None, default=None
        Refuse work that needs more than this many bytes; None means what the machine has left.

    Attributes
    ----------
    classes_ : array of shape (C,)
        Labels seen so far, sorted.
    coefficients_ : array of shape (D + 1, C)
        W̃, the bias last.
    ridge_ : float
        λ in use.
    ridge_path_ : list of RidgeTrial
        Every λ tried, with its mean squared error and accuracy; empty where λ was given.
    statistics_ : Statistics
        The sums: all that is remembered of the data.
    kernel_map_ : KernelMap
    head_ : Head
        All of these as one frozen value.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = IncrementalLSSVC(n_components=500)
    >>> for digit in range(10):                          # one class at a time
    ...     chosen = y[:1200] == digit
    ...     model = model.partial_fit(X[:1200][chosen], y[:1200][chosen])
    >>> bool(model.score(X[1200:], y[1200:]) > 0.93)
    True
    """

    def __init__(
        self,
        n_components: int | None = 15000,
        ridge: float | str = "auto",
        svm_cost: float = 10.0,
        random_state: Any = 0,
        *,
        max_selection_samples: int | None = 5000,
        memory_limit: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.ridge = ridge
        self.svm_cost = svm_cost
        self.random_state = random_state
        self.max_selection_samples = max_selection_samples
        self.memory_limit = memory_limit

    def _options(self) -> HeadOptions:
        return HeadOptions(fused=False, **self.get_params())


class VisClassifier(IncrementalClassifier):
    """The paper's whole method: residual fusion, fixed random kernel map, incremental LS-SVM.

    In the first session λ and the layers are chosen on a split of it, the mixer is trained on all
    of it and then frozen. Every later session only adds to the sums.

    Parameters
    ----------
    layer_dims : sequence of int or None, default=None
        Widths of the layers that stand side by side in X, the final one last; None means one layer.
    layers : "auto" or sequence of int, default="auto"
        Layers the mixer reads, as 1-based positions in `layer_dims`; "auto" chooses them in the
        first session.
    n_components, ridge, svm_cost, random_state, max_selection_samples, memory_limit
        As in ``IncrementalLSSVC``.
    hidden : int, default=256
        Hidden width of the mixer.
    epochs : int, default=5
    optimizer : {"adam", "sgd"}, default="adam"
        What trains the mixer. The paper has "sgd", whose steps are too few to change anything.
    learning_rate : float or None, default=None
        None is 0.001 with "adam", 0.01 with "sgd".
    batch_size : int, default=64
    identity_weight : float, default=0.01
        λ_adapt, which keeps the fused feature near the final layer.

    Attributes
    ----------
    classes_, coefficients_, ridge_, ridge_path_, statistics_, kernel_map_, head_
        As in ``IncrementalLSSVC``.
    mixer_ : ResidualMixer
    layers_ : tuple of int
        Layers in use.
    layer_path_ : list of LayerTrial
        Every set of layers tried, with its λ, mean squared error and accuracy; empty where layers
        were given.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> y = generator.integers(0, 3, 90)
    >>> X = generator.normal(size=(90, 8)) + 3 * np.eye(3)[y] @ generator.normal(size=(3, 8))
    >>> model = VisClassifier(layer_dims=(4, 4), n_components=100).fit(X[:60], y[:60])
    >>> model.layers_ in [(2,), (1, 2)], bool(model.score(X[60:], y[60:]) > 0.8)
    (True, True)
    """

    def __init__(
        self,
        layer_dims: Any = None,
        layers: Any = "auto",
        n_components: int | None = 15000,
        ridge: float | str = "auto",
        svm_cost: float = 10.0,
        random_state: Any = 0,
        *,
        hidden: int = 256,
        epochs: int = 5,
        optimizer: str = "adam",
        learning_rate: float | None = None,
        batch_size: int = 64,
        identity_weight: float = 0.01,
        max_selection_samples: int | None = 5000,
        memory_limit: float | None = None,
    ) -> None:
        self.layer_dims = layer_dims
        self.layers = layers
        self.n_components = n_components
        self.ridge = ridge
        self.svm_cost = svm_cost
        self.random_state = random_state
        self.hidden = hidden
        self.epochs = epochs
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.identity_weight = identity_weight
        self.max_selection_samples = max_selection_samples
        self.memory_limit = memory_limit

    @classmethod
    def of(cls, options: HeadOptions, head: Head | None) -> Self:
        """Return the estimator with these options that has learned what a head has."""
        shell = cls(**options.parameters)
        if head is not None:
            shell.head_, shell.n_features_in_ = head, head.settled.lift.n_inputs
        return shell

    @property
    def mixer_(self) -> ResidualMixer:
        """The mixer."""
        mixer = self._fitted().settled.lift.mixer
        assert mixer is not None
        return mixer

    @property
    def layers_(self) -> tuple[int, ...]:
        """Layers in use."""
        return self._fitted().settled.layers

    @property
    def layer_path_(self) -> list[LayerTrial]:
        """Every set of layers tried; empty where layers were given."""
        return list(self._fitted().settled.layer_path)

    def _options(self) -> HeadOptions:
        given = self.get_params()
        mixer = MixerOptions(**{name: given.pop(name) for name in MIXER_OPTIONS})
        return HeadOptions(**given, mixer=mixer)
