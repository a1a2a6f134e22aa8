"""Layer features and labels in, labels out: the scikit-learn estimators.

``IncrementalLSSVC`` is kernel map and LS-SVM; ``VisClassifier`` is the paper's whole method, with
residual fusion before it.
"""

from typing import Any, Self

from visvm.head.fusion import MixerOptions, ResidualMixer
from visvm.head.head import Head
from visvm.head.incremental import IncrementalClassifier
from visvm.head.products import Array
from visvm.head.selection import LayerTrial
from visvm.head.settle import MIXER_OPTIONS, HeadOptions


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
    renew_ridge : bool, default=False
        If the first session has fewer than ten classes, let sessions choose λ anew, from the sums,
        whenever the number of samples has doubled. Merging and forgetting keep λ.

    Attributes
    ----------
    classes_ : array of shape (C,)
        Labels seen so far, sorted.
    coefficients_ : array of shape (D + 1, C)
        W̃, the bias last.
    ridge_ : float
        λ in use.
    ridge_path_ : list of RidgeTrial
        Every λ tried in the first session, with its mean squared error and accuracy; empty where λ
        was given.
    statistics_ : Statistics
        The sums: all that is remembered of the data.
    kernel_map_ : KernelMap
    head_ : Head
        All of these as one frozen value.
    likelihoods_ : array of shape (49,) or None
        What was noted for ``predict_proba``.

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
        renew_ridge: bool = False,
    ) -> None:
        self.n_components = n_components
        self.ridge = ridge
        self.svm_cost = svm_cost
        self.random_state = random_state
        self.max_selection_samples = max_selection_samples
        self.memory_limit = memory_limit
        self.renew_ridge = renew_ridge

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
    n_components, ridge, svm_cost, random_state, max_selection_samples, memory_limit, renew_ridge
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
    >>> import numpy as np
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
        renew_ridge: bool = False,
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
        self.renew_ridge = renew_ridge

    @classmethod
    def of(cls, options: HeadOptions, head: Head | None, likelihoods: Array | None = None) -> Self:
        """Return the estimator with these options that has learned what a head has.

        `likelihoods`, (49,), is what was noted for probabilities (``calibration.py``).
        """
        shell = cls(**options.parameters)
        if head is not None:
            shell.head_, shell.n_features_in_ = head, head.settled.lift.n_inputs
            shell.likelihoods_ = likelihoods
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
