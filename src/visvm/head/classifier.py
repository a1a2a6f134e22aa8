"""Layer features in, labels out: the scikit-learn estimators.

``IncrementalLSSVC`` is kernel map and LS-SVM; ``VisClassifier`` is the paper's whole method, with
residual fusion before it.
"""

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from visvm.errors import InputError
from visvm.head.checks import is_count, is_filled, is_positive, require
from visvm.head.fusion import OPTIMIZERS, MixerOptions, ResidualMixer, train_mixer
from visvm.head.incremental import IncrementalClassifier
from visvm.head.selection import (
    LayerTrial,
    RidgeTrial,
    Split,
    best_layers,
    layer_candidates,
    search_ridge,
    split_base_session,
)

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


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

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = IncrementalLSSVC(n_components=500)
    >>> for digit in range(10):                          # one class at a time
    ...     model = model.partial_fit(X[:1200][y[:1200] == digit], y[:1200][y[:1200] == digit])
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

    def _fused_width(self) -> int:
        return int(self.n_features_in_)

    def _settle(self, X: Array, targets: Indices, weight: Array) -> None:
        self.ridge_path_: list[RidgeTrial] = []
        if self.ridge == "auto":
            split = split_base_session(targets, self.max_selection_samples, self.seed_)
            best, self.ridge_path_ = search_ridge(
                lambda chosen: self._lift(X[chosen]), targets, weight, split, svm_cost=self.svm_cost
            )
            self.ridge_ = best.ridge

    def _lift(self, X: Array) -> Array:
        return self.kernel_map_.lift(X)


class VisClassifier(IncrementalClassifier):
    """The paper's whole method: residual fusion of layers, fixed random kernel map, incremental least-squares SVM.

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
    classes_, coefficients_, ridge_, ridge_path_, statistics_, kernel_map_
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

    def _fused_width(self) -> int:
        return self._layer_dims()[-1]

    def _layer_dims(self) -> tuple[int, ...]:
        """Those that were learned with, or in the base session those that were given."""
        if hasattr(self, "mixer_"):
            return self.mixer_.layer_dims
        return (
            (int(self.n_features_in_),)
            if self.layer_dims is None
            else tuple(int(dim) for dim in self.layer_dims)
        )

    def _settle(self, X: Array, targets: Indices, weight: Array) -> None:
        self.ridge_path_: list[RidgeTrial] = []
        self.layer_path_: list[LayerTrial] = []
        automatic = isinstance(self.layers, str)
        candidates = (
            layer_candidates(len(self._layer_dims()))
            if automatic
            else [tuple(int(layer) for layer in self.layers)]
        )
        if int(targets.max()) == 0:
            # one class: the mixer is the identity, whichever layers it could read
            candidates = candidates[:1]
        self.layers_ = candidates[0]
        if len(candidates) > 1 or self.ridge == "auto":
            split = split_base_session(targets, self.max_selection_samples, self.seed_)
            outcomes: list[tuple[LayerTrial, list[RidgeTrial]]] = []
            for layers in candidates:
                self._report_step("choosing λ and blocks", len(outcomes), len(candidates))
                outcomes.append(self._try_layers(layers, X, targets, weight, split))
            self._report_step("choosing λ and blocks", len(candidates), len(candidates))
            trials = [trial for trial, _ in outcomes]
            chosen = best_layers(trials)
            self.layers_, self.ridge_ = chosen.layers, chosen.ridge
            if automatic:
                self.layer_path_ = trials
            if self.ridge == "auto":
                self.ridge_path_ = outcomes[trials.index(chosen)][1]
        self.mixer_ = self._train(self.layers_, X, targets, weight)

    def _try_layers(
        self, layers: tuple[int, ...], X: Array, targets: Indices, weight: Array, split: Split
    ) -> tuple[LayerTrial, list[RidgeTrial]]:
        """Train a mixer on the split's training part and choose λ for it on the rest."""
        mixer = self._train(layers, X[split.train], targets[split.train], weight[split.train])
        given = (
            {} if self.ridge == "auto" else {"candidates": (float(self.ridge),), "beyond": False}
        )
        best, trials = search_ridge(
            lambda chosen: self.kernel_map_.lift(mixer.fuse(X[chosen])),
            targets,
            weight,
            split,
            svm_cost=self.svm_cost,
            **given,  # type: ignore[arg-type]
        )
        return LayerTrial(layers, *best), trials

    def _train(
        self, layers: tuple[int, ...], X: Array, targets: Indices, weight: Array
    ) -> ResidualMixer:
        options = MixerOptions(
            **{field.name: getattr(self, field.name) for field in fields(MixerOptions)}
        )
        return train_mixer(
            X,
            targets,
            weight,
            layer_dims=self._layer_dims(),
            layers=layers,
            options=options,
            seed=self.seed_,
        )

    def _lift(self, X: Array) -> Array:
        return self.kernel_map_.lift(self.mixer_.fuse(X))

    def _selects(self) -> bool:
        return super()._selects() or isinstance(self.layers, str)

    def _mixer_floats(self, n_new: int) -> int:
        dims = self._layer_dims()
        return 2 * n_new * (sum(dims) + dims[-1]) + 4 * self.hidden * (sum(dims) + dims[-1])

    def _digests(self) -> tuple[str, ...]:
        return (self.kernel_map_.digest, self.mixer_.digest)

    def _validate_parameters(self) -> None:
        super()._validate_parameters()
        for name in ("hidden", "epochs", "batch_size"):
            require(is_count(getattr(self, name)), self, name, "a whole number of at least 1")
        named = isinstance(self.optimizer, str) and self.optimizer in OPTIMIZERS
        require(named, self, "optimizer", f"one of {', '.join(map(repr, OPTIMIZERS))}")
        rate = self.learning_rate
        require(
            rate is None or is_positive(rate),
            self,
            "learning_rate",
            "None or a finite number above 0",
        )
        require(
            is_positive(self.identity_weight, or_zero=True),
            self,
            "identity_weight",
            "a finite number of at least 0",
        )
        dims = self.layer_dims
        require(
            dims is None or (is_filled(dims) and all(is_count(dim) for dim in dims)),
            self,
            "layer_dims",
            "None or a non-empty sequence of whole numbers of at least 1",
        )
        n_layers = 1 if dims is None else len(dims)
        automatic = isinstance(self.layers, str) and self.layers == "auto"
        require(
            automatic
            or (
                is_filled(self.layers)
                and all(is_count(layer) and layer <= n_layers for layer in self.layers)
                and len(set(self.layers)) == len(self.layers)
            ),
            self,
            "layers",
            f"'auto' or a sequence of different layers from 1 to {n_layers}",
        )

    def _validate_features(self, X: ArrayLike, *, base: bool) -> Array:
        features = super()._validate_features(X, base=base)
        total = sum(self._layer_dims())
        if total != features.shape[1]:
            raise InputError(
                f"X must have as many columns as layer_dims add up to, {total}; got {features.shape[1]}: correct either"
            )
        return features
