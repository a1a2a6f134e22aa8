"""One-hot ridge regression on the paper's own lifted features."""

from visvm.bench.methods.method import Entry, Traits
from visvm.bench.methods.vis import Vis
from visvm.head.classifier import Array, Indices, VisClassifier
from visvm.head.selection import search_ridge, split_base_session
from visvm.head.solver import solve


class _OneHotClassifier(VisClassifier):
    """``VisClassifier`` with targets 1 and 0, not 1 and -1: eq. 17, Q = Σ φ̃yᵀ over one-hot y."""

    def _settle(self, X: Array, targets: Indices, weight: Array) -> None:
        super()._settle(X, targets, weight)  # blocks and mixer, as ±1 targets choose them
        if self.ridge != "auto":
            return
        split = split_base_session(targets, self.max_selection_samples, self.seed_)
        mixer = self._train(self.layers_, X[split.train], targets[split.train], weight[split.train])
        best, self.ridge_path_ = search_ridge(
            lambda chosen: self.kernel_map_.lift(mixer.fuse(X[chosen])),
            targets,
            weight,
            split,
            svm_cost=self.svm_cost,
            negative=0.0,
        )
        self.ridge_ = best.ridge

    def _solve(self) -> None:
        if self.ridge != "auto":
            self.ridge_ = float(self.ridge)
        self.classes_ = self.statistics_.classes
        self.coefficients_ = solve(self.statistics_, self.ridge_, self.svm_cost, negative=0.0)


class OneHotRidge(Vis):
    """The paper's classifier-choice "Ridge": features of ``vis``, least squares on one-hot targets.

    Blocks, mixer and random map are those of ``vis``. λ is chosen on the same split of the base
    session by the mean squared error of the one-hot targets. With the same λ the scores differ from
    those of ``vis`` only by a factor of 2 and a function of x that all classes share, so that only
    the choice of λ can make a difference.

    Parameters
    ----------
    setup : Setup
    n_components, layers, ridge, svm_cost, hidden, epochs, optimizer, learning_rate, batch_size,
    identity_weight, max_selection_samples
        As in ``visvm.VisClassifier``.
    """

    _estimator = _OneHotClassifier


ENTRIES = [Entry("ridge", OneHotRidge, "relative", traits=Traits(mixes=True))]
