"""One-hot ridge regression on the paper's own lifted features."""

from dataclasses import replace

import numpy as np

from visvm.bench.methods.method import Entry, Traits
from visvm.bench.methods.vis import Vis
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.head.estimators import VisClassifier
from visvm.head.fusion import train_mixer
from visvm.head.head import Head
from visvm.head.lift import Lift
from visvm.head.selection import search_ridge, split_base_session
from visvm.head.settle import Settled
from visvm.head.solver import solve


class OneHotRidge(Vis):
    """The paper's classifier-choice "Ridge": features of ``vis``, least squares on one-hot targets.

    Blocks, mixer, random map and options are those of ``vis``. λ is chosen on the same split of the
    base session by the mean squared error of the one-hot targets. With the same λ the scores differ
    from those of ``vis`` only by a factor of 2 and a function of x that all classes share, so that
    only the choice of λ can make a difference.
    """

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Learn one session; the first one settles blocks, mixer and λ."""
        head = self._model.head_
        if head is None:
            head = self._model.settle(features, labels).head_
            assert head is not None
            head = Head.blank(_with_one_hot_ridge(head.settled, features, labels))
        head = head.learned(features, labels)
        settled, options = head.settled, head.settled.options
        # eq. 17, with Q = Σ φ̃yᵀ over one-hot y
        solution = solve(head.statistics, settled.ridge, options.svm_cost, negative=0.0)
        self._model = VisClassifier.of(options, replace(head, coefficients=solution))


def _with_one_hot_ridge(settled: Settled, features: LayerFeatures, labels: ClassNumbers) -> Settled:
    """Return the same choices with the λ that suits targets of 1 and 0, unless it was given."""
    options, mixer = settled.options, settled.lift.mixer
    if options.ridge != "auto" or mixer is None:
        return settled
    _, targets = np.unique(labels, return_inverse=True)
    weight = np.ones(len(targets))
    split = split_base_session(targets, options.max_selection_samples, settled.seed)
    partly = train_mixer(
        features[split.train].astype(np.float64),
        targets[split.train],
        weight[split.train],
        layer_dims=mixer.layer_dims,
        layers=mixer.layers,
        options=options.mixer,
        seed=settled.seed,
    )
    lift = Lift(partly, settled.lift.kernel_map)
    best, trials = search_ridge(
        lambda chosen: lift(features[chosen]),
        targets,
        weight,
        split,
        svm_cost=options.svm_cost,
        negative=0.0,
    )
    return replace(settled, ridge=best.ridge, ridge_path=tuple(trials))


ENTRIES = [Entry("ridge", OneHotRidge, "relative", traits=Traits(mixes=True))]
