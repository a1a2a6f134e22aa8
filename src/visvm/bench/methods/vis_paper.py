"""``vis`` with the mixer trained as the paper says, by plain SGD."""

from visvm.bench.methods.method import Entry, Setup, Traits
from visvm.bench.methods.vis import Vis


class VisPaper(Vis):
    """The paper's training of the mixer: SGD, learning rate 0.01, 5 epochs; all else is ``vis``.

    Also in units in which the final feature has length 8, about what it has in the paper's encoder;
    other encoders' features are brought to that.

    Parameters
    ----------
    setup : Setup
    n_components, max_selection_samples
        As in ``visvm.VisClassifier``.
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


ENTRIES = [Entry("vis-paper", VisPaper, "relative", traits=Traits(mixes=True), published="vis")]
