"""A method of the benchmark: features and labels in, session by session; labels out.

``Entry`` is what the benchmark knows of a method before it runs. Every file of this folder declares
the entries of its methods beside their classes.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from visvm.bench.kept import Kept
from visvm.bench.pictures import Pictures
from visvm.bench.streams import ClassNumbers
from visvm.bench.texts import ClassTexts
from visvm.bench.vit.trainable import Trainable
from visvm.encoders.encoder import LayerFeatures
from visvm.encoders.joint import Tail
from visvm.errors import EncoderError

Projection = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""The final block's feature, (n, layer_dim) → what the encoder itself puts out, (n, any width)."""

MethodKind = Literal["baseline", "relative", "ours", "oracle"]
"""A relative is ours with another classifier, with parts left out or trained otherwise: no rival.

The oracle keeps all images and learns them anew, which is a ceiling and no rival either.
"""

Need = Literal["features", "text", "concepts", "images", "torch"]


@dataclass(frozen=True)
class Setup:
    """All that a method knows before the first session: nothing of what is to come."""

    layer_dims: tuple[int, ...]  # width of every block's feature
    project: Projection  # the encoder's last norm, and CLIP's projection after it
    seed: int = 0  # of whatever the method draws at random
    tail: Tail | None = None  # the encoder's last norm and projection apart, where they are known
    texts: ClassTexts | None = None  # for methods that need text: of the classes that have arrived
    setting: str = ""  # name of the data set; with "-half" where half of its classes come first
    trainable: Trainable | None = None  # the encoder, where it can be trained through
    kept: Kept = field(default_factory=Kept)  # what an interrupted run had trained


@dataclass(frozen=True)
class Costs:
    """What a method has cost so far."""

    trainable_parameters: int  # numbers that gradient descent has found and that are kept
    state_bytes: int  # needed to learn the next session and to predict, without the encoder
    choices: dict[str, Any] = field(default_factory=dict)  # such as λ and blocks, as JSON has it


class Method(Protocol):
    """A class-incremental learner on a frozen encoder's features.

    Its class is called with a ``Setup`` and, by name, the options that a recipe may change.
    """

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Learn one session, (n, sum of layer_dims) and (n,); no old image comes back.

        Classes are numbered as they arrive: those of the first session begin with 0.
        """

    def predict(self, features: LayerFeatures) -> ClassNumbers:
        """Return class numbers, (n,), among all classes learned so far."""

    def costs(self) -> Costs:
        """Return what was trained, kept and chosen so far."""


class SeeingMethod(Protocol):
    """A learner that needs "images": it is given the pictures beside their features."""

    def learn(self, features: LayerFeatures, labels: ClassNumbers, pictures: Pictures) -> None:
        """Learn one session, as a ``Method`` does."""

    def predict(self, features: LayerFeatures, pictures: Pictures) -> ClassNumbers:
        """Return class numbers, (n,)."""

    def costs(self) -> Costs:
        """Return what was trained, kept and chosen so far."""


@dataclass(frozen=True)
class Traits:
    """What time and memory follow from, beside an LS-SVM on the final block."""

    mixes: bool = False  # trains a mixer in the first session, for every candidate set of blocks
    refits: bool = False  # learns all images anew in every session
    resplits: bool = False  # chooses λ on a split of every session, not of the first alone
    dense: bool = False  # holds a D × D matrix from the start
    # through the encoder: "first" in the first session only, after which all images are encoded
    # anew; "every" in every session, after which the test images are
    trains: Literal["", "first", "every"] = ""


@dataclass(frozen=True)
class Entry:
    """What the benchmark knows of a method.

    Raise the revision when the method answers differently: rows of other revisions are measured
    again.
    """

    name: str  # as recipes, rows and tables have it
    factory: Callable[..., Any] | None  # None if nobody has written it yet
    kind: MethodKind = "baseline"
    needs: tuple[Need, ...] = ("features",)
    revision: int = 1
    traits: Traits = Traits()  # for estimates of time and memory
    published: str | None = None  # method of published.toml whose numbers belong beside its rows

    @property
    def options(self) -> dict[str, Any]:
        """Options with their defaults: what the factory takes by name alone."""
        if self.factory is None:
            return {}
        parameters = inspect.signature(self.factory).parameters.values()
        return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}

    def changed(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return those options that the method has and whose default is another; 1.0 becomes 1."""
        return {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in options.items()
            if name in self.options and self.options[name] != value
        }

    def make(self, setup: Setup, **options: Any) -> Any:
        """Make a method that has learned nothing yet."""
        if self.factory is None:
            raise EncoderError(
                f"{self.name} cannot be run: it needs {', '.join(self.needs)}.", code="method-unmet"
            )
        return self.factory(setup, **options)
