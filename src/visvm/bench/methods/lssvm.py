"""The ablation's two rungs below the whole method: an LS-SVM on the final block.

One is linear, the other works on the random kernel map.
"""

import numpy as np

from visvm.bench.methods.linear import final_block
from visvm.bench.methods.method import Costs, Entry, Setup
from visvm.bench.methods.sums import statistics_bytes
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.head.estimators import IncrementalLSSVC


class VisualLSSVM:
    """The paper's "Visual LS-SVM": linear, on the final block, neither kernel map nor fusion.

    The options are those of ``visvm.IncrementalLSSVC``.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        ridge: float | str = "auto",
        svm_cost: float = 10.0,
        max_selection_samples: int | None = 5000,
    ) -> None:
        self._setup = setup
        self._model = IncrementalLSSVC(
            n_components=None,
            ridge=ridge,
            svm_cost=svm_cost,
            random_state=setup.seed,
            max_selection_samples=max_selection_samples,
        )

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Learn one session; the first one settles λ."""
        self._model.partial_fit(final_block(features, self._setup), labels)

    def predict(self, features: LayerFeatures) -> ClassNumbers:
        """Return class numbers, (n,)."""
        return np.asarray(self._model.predict(final_block(features, self._setup)), dtype=np.intp)

    def costs(self) -> Costs:
        """Return what was kept and chosen; the random map is drawn from its seed, not counted."""
        model = self._model
        accuracies = [trial.accuracy for trial in model.ridge_path_ if trial.ridge == model.ridge_]
        choices = {
            "ridge": model.ridge_,
            "validation_accuracy": accuracies[0] if accuracies else None,
        }
        return Costs(0, statistics_bytes(model.statistics_) + model.coefficients_.nbytes, choices)


class VisualLSSVMKernel(VisualLSSVM):
    """The paper's "w/ Kernel Map": the same on the lifted final block."""

    def __init__(
        self,
        setup: Setup,
        *,
        n_components: int = 15000,
        ridge: float | str = "auto",
        svm_cost: float = 10.0,
        max_selection_samples: int | None = 5000,
    ) -> None:
        super().__init__(
            setup, ridge=ridge, svm_cost=svm_cost, max_selection_samples=max_selection_samples
        )
        self._model.set_params(n_components=n_components)


ENTRIES = [
    Entry("visual-lssvm", VisualLSSVM, "relative"),
    Entry("visual-lssvm+kernel", VisualLSSVMKernel, "relative"),
]
