"""The paper's method: residual fusion, random kernel map, LS-SVM (``visvm.VisClassifier``)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from visvm.bench.methods.method import Costs, Entry, Setup, Traits
from visvm.bench.methods.sums import statistics_bytes
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.head.estimators import VisClassifier
from visvm.head.selection import LayerTrial, RidgeTrial


class Vis:
    """Hu et al., *Visual Branch is What You Need for CLIP-based Class-Incremental Learning*.

    The options are those of ``visvm.VisClassifier``.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        n_components: int | None = 15000,
        layers: str | Sequence[int] = "auto",
        ridge: float | str = "auto",
        svm_cost: float = 10.0,
        hidden: int = 256,
        epochs: int = 5,
        optimizer: str = "adam",
        learning_rate: float | None = None,
        batch_size: int = 64,
        identity_weight: float = 0.01,
        max_selection_samples: int | None = 5000,
    ) -> None:
        self._model = VisClassifier(
            layer_dims=setup.layer_dims,
            layers=layers,
            n_components=n_components,
            ridge=ridge,
            svm_cost=svm_cost,
            random_state=setup.seed,
            hidden=hidden,
            epochs=epochs,
            optimizer=optimizer,
            learning_rate=learning_rate,
            batch_size=batch_size,
            identity_weight=identity_weight,
            max_selection_samples=max_selection_samples,
        )

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Learn one session; the first one settles blocks, mixer and λ."""
        self._model.partial_fit(features, labels)

    def predict(self, features: LayerFeatures) -> ClassNumbers:
        """Return class numbers, (n,)."""
        return np.asarray(self._model.predict(features), dtype=np.intp)

    def costs(self) -> Costs:
        """Return what was trained, kept and chosen so far."""
        mixer = self._model.mixer_
        # Of one class nothing is learned, and the mixer stays the identity. The auxiliary
        # classifier is not kept.
        trained = 0 if mixer.is_identity else sum(array.size for array in mixer.weights)
        n_bytes = self._state_bytes() + sum(array.nbytes for array in mixer.weights)
        return Costs(trained, n_bytes, self._choices())

    def _state_bytes(self) -> int:
        """Count all but the mixer and the random map, which is drawn from its seed."""
        return statistics_bytes(self._model.statistics_) + self._model.coefficients_.nbytes

    def _choices(self) -> dict[str, Any]:
        model = self._model
        of_layers = [trial for trial in model.layer_path_ if trial.layers == model.layers_]
        tried: Sequence[RidgeTrial | LayerTrial] = model.ridge_path_ or of_layers
        accuracies = [trial.accuracy for trial in tried if trial.ridge == model.ridge_]
        return {
            "ridge": model.ridge_,
            "layers": list(model.layers_),
            "mixer_is_identity": model.mixer_.is_identity,
            # of the base session's held-out part
            "validation_accuracy": accuracies[0] if accuracies else None,
        }


class VisPaper(Vis):
    """``vis`` with the mixer trained as the paper says: SGD, learning rate 0.01, 5 epochs.

    Also in units in which the final feature has length 8, about what it has in the paper's encoder;
    other encoders' features are brought to that.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        n_components: int | None = 15000,
        max_selection_samples: int | None = 5000,
    ) -> None:
        super().__init__(
            setup,
            n_components=n_components,
            max_selection_samples=max_selection_samples,
            optimizer="sgd",
        )


ENTRIES = [
    Entry("vis-paper", VisPaper, "relative", traits=Traits(mixes=True), published="vis"),
    Entry("vis", Vis, "ours", traits=Traits(mixes=True), published="vis"),
]
