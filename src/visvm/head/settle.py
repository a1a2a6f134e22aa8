"""All that the base session decides, as one frozen value: λ, the layers, the mixer and the map.

``settle`` chooses by the first samples that a model sees, and learns nothing yet. Every session,
this one too, then only adds to the sums (``head.py``). Of the choices, λ alone may be made anew:
with ``renew_ridge``, from the sums, if it was chosen among few classes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from visvm.errors import InputError
from visvm.head import memory
from visvm.head.checks import Labels, is_count, is_filled, is_positive, parameter_error, seed_of
from visvm.head.fusion import OPTIMIZERS, MixerOptions, train_mixer
from visvm.head.lift import Features, KernelMap, Lift, MapEntry
from visvm.head.products import Array, Indices
from visvm.head.selection import (
    RIDGE_CANDIDATES,
    HoldOut,
    LayerTrial,
    RidgeBasis,
    RidgeTrial,
    best_layers,
    layer_candidates,
    search_ridge,
    split_base_session,
)
from visvm.head.texts import TextSamples
from visvm.progress import Progress, silent

FEW_CLASSES = 10
"""λ of a first session with fewer classes than these may be chosen anew."""

MIXER_OPTIONS = tuple(each.name for each in fields(MixerOptions))

_Rule = tuple[Callable[[Any], bool], str]  # whether a value is allowed, and what it must be


def _or_none(allowed: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return the rule that allows None too."""
    return lambda value: value is None or allowed(value)


_COUNT: _Rule = (is_count, "a whole number of at least 1")
_RULES: dict[str, _Rule] = {
    "n_components": (
        _or_none(lambda width: is_count(width) and width < 2**31),
        "a whole number from 1 to 2147483647, or None",
    ),
    "ridge": (
        lambda ridge: is_positive(ridge) or (isinstance(ridge, str) and ridge == "auto"),
        "'auto' or a finite number above 0",
    ),
    "svm_cost": (is_positive, "a finite number above 0"),
    "max_selection_samples": (_or_none(is_count), "a whole number of at least 1, or None"),
    "memory_limit": (_or_none(is_positive), "a number of bytes above 0, or None"),
    "renew_ridge": (lambda renews: isinstance(renews, bool), "True or False"),
}
_FUSION_RULES: dict[str, _Rule] = {
    "hidden": _COUNT,
    "epochs": _COUNT,
    "batch_size": _COUNT,
    "optimizer": (
        lambda name: isinstance(name, str) and name in OPTIMIZERS,
        f"one of {', '.join(map(repr, OPTIMIZERS))}",
    ),
    "learning_rate": (_or_none(is_positive), "None or a finite number above 0"),
    "identity_weight": (
        lambda weight: is_positive(weight, or_zero=True),
        "a finite number of at least 0",
    ),
    "layer_dims": (
        _or_none(lambda dims: is_filled(dims) and all(map(is_count, dims))),
        "None or a non-empty sequence of whole numbers of at least 1",
    ),
}


@dataclass(frozen=True)
class HeadOptions:
    """What a user may choose about a head.

    Parameters
    ----------
    layer_dims : sequence of int or None
        Widths of the layers that stand side by side in X, the final one last; None is one layer.
    layers : "auto" or sequence of int
        Layers the mixer reads, as 1-based positions in `layer_dims`.
    n_components, ridge, svm_cost, random_state, max_selection_samples, memory_limit, renew_ridge
        As in ``IncrementalLSSVC``.
    mixer : MixerOptions
    fused : bool
        Whether there is a mixer; without one, layers do not matter.
    """

    layer_dims: Any = None
    layers: Any = "auto"
    n_components: int | None = 15000
    ridge: float | str = "auto"
    svm_cost: float = 10.0
    random_state: Any = 0
    max_selection_samples: int | None = 5000
    memory_limit: float | None = None
    renew_ridge: bool = False
    mixer: MixerOptions = field(default_factory=MixerOptions)
    fused: bool = True

    def dims(self, n_features: int) -> tuple[int, ...]:
        """Return the widths of the layers in this many columns of features."""
        if not self.fused or self.layer_dims is None:
            return (n_features,)
        return tuple(int(dim) for dim in self.layer_dims)

    def kernel_map(self, n_inputs: int) -> KernelMap:
        """Draw the random map for fused features of this width."""
        return KernelMap(n_inputs, self.n_components, seed_of(self.random_state))

    @staticmethod
    def of_map(entry: MapEntry) -> dict[str, Any]:
        """Return the options, beside ``n_components``, by which a map is drawn again."""
        return {"random_state": entry["seed"]}

    @property
    def parameters(self) -> dict[str, Any]:
        """All of them by name, those of the mixer among them, as ``VisClassifier`` takes them."""
        every = vars(self) | vars(self.mixer)
        return {name: every[name] for name in sorted(every) if name not in ("mixer", "fused")}

    @property
    def selects_layers(self) -> bool:
        """Whether the base session chooses the layers."""
        return self.fused and isinstance(self.layers, str)

    def check(self, owner: str) -> None:
        """Refuse values that are not allowed, naming the `owner` of the parameters."""
        values = vars(self) | vars(self.mixer)
        rules = _RULES | _FUSION_RULES if self.fused else _RULES
        for name, (allowed, what) in rules.items():
            if not allowed(values[name]):
                raise parameter_error(owner, name, values[name], what)
        if not self.fused:
            return
        n_layers = 1 if self.layer_dims is None else len(self.layer_dims)
        if not _are_layers(self.layers, n_layers):
            what = f"'auto' or a sequence of different layers from 1 to {n_layers}"
            raise parameter_error(owner, "layers", self.layers, what)


def _are_layers(layers: Any, n_layers: int) -> bool:
    if isinstance(layers, str):
        return layers == "auto"
    counted = is_filled(layers) and all(is_count(each) and each <= n_layers for each in layers)
    return counted and len(set(layers)) == len(layers)


@dataclass(frozen=True, eq=False)
class Settled:
    """What a base session has decided.

    Attributes
    ----------
    options : HeadOptions
    lift : Lift
        The mixer and the kernel map.
    ridge : float
        λ.
    ridge_path : tuple of RidgeTrial
        Every λ tried, with its error and accuracy; empty where λ was given.
    layer_path : tuple of LayerTrial
        Every set of layers tried; empty where layers were given.
    ridge_basis : RidgeBasis or None
        What λ was chosen by the last time; None where it is final: given, or chosen among ten
        classes or more.
    texts : TextSamples or None
        What text says of classes; a session may bring more.
    """

    options: HeadOptions
    lift: Lift
    ridge: float
    ridge_path: tuple[RidgeTrial, ...] = ()
    layer_path: tuple[LayerTrial, ...] = ()
    ridge_basis: RidgeBasis | None = None
    texts: TextSamples | None = None

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that are fused, as 1-based positions; empty without a mixer."""
        return () if self.lift.mixer is None else self.lift.mixer.layers

    @property
    def seed(self) -> int:
        """Seed of the random map, of the split and of the mixer's training."""
        return self.lift.kernel_map.seed

    @property
    def bare(self) -> "Settled":
        """The same choices, without how they came about, and without texts."""
        return replace(self, ridge_path=(), layer_path=(), ridge_basis=None, texts=None)

    def renamed(self, old: Any, new: Any) -> "Settled":
        """Return the same choices, with a class renamed in the texts."""
        return self if self.texts is None else replace(self, texts=self.texts.renamed(old, new))

    def joined(self, texts: TextSamples) -> "Settled":
        """Return the same choices, with these texts of classes that have none."""
        return replace(self, texts=texts if self.texts is None else self.texts.joined(texts))

    @property
    def may_renew_ridge(self) -> bool:
        """Whether λ is not final, and may be chosen anew."""
        return self.ridge_basis is not None and self.options.renew_ridge

    def renews_ridge(self, n_images: float, n_classes: int) -> bool:
        """Whether λ is to be chosen anew now that so much was learned: twice as many images."""
        chosen = self.ridge_basis
        due = chosen is not None and n_images >= 2 * chosen.n_images
        return due and self.may_renew_ridge and n_classes > 1

    def with_options(self, options: HeadOptions) -> "Settled":
        """Return the same choices under other options, with λ from there if one is given."""
        if options.ridge == "auto":
            return replace(self, options=options)
        return replace(self, options=options, ridge=float(options.ridge), ridge_basis=None)


def settle(
    X: Features,
    y: Labels,
    options: HeadOptions,
    *,
    weight: Array | None = None,
    progress: Progress = silent,
) -> Settled:
    """Make the base session's choices.

    λ and the layers are chosen on a split of the samples; the mixer is then trained on all of them.

    Parameters
    ----------
    X : array of shape (n, n_features)
        Finite layer features, float32 or float64.
    y : array of shape (n,)
        Labels.
    options : HeadOptions
        That have passed their ``check``.
    weight : array of shape (n,), optional
        How often each sample counts, above zero.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(20, 4))
    >>> settled = settle(X, np.arange(20) % 2, HeadOptions(layer_dims=(2, 2), n_components=10))
    >>> settled.lift(X).shape, settled.layers in [(2,), (1, 2)], settled.ridge > 0
    ((20, 10), True, True)
    """
    dims = options.dims(X.shape[1])
    if sum(dims) != X.shape[1]:
        raise InputError(
            f"X has {X.shape[1]} columns, but layer_dims add up to {sum(dims)}. Correct either.",
            code="columns-mismatch",
        )
    present, targets = np.unique(y, return_inverse=True)
    _require_memory(len(X), len(present), dims, options)
    weight = np.ones(len(X)) if weight is None else weight
    kernel_map = options.kernel_map(dims[-1])
    return _Base(X, targets, weight, options, dims, kernel_map).settle(progress)


def _require_memory(n: int, n_classes: int, dims: Sequence[int], options: HeadOptions) -> None:
    """Refuse a base session that does not fit in memory."""
    widths = sum(dims) + dims[-1]
    limit = options.max_selection_samples
    selects = options.ridge == "auto" or options.selects_layers
    sizes = memory.SessionSizes(
        n_new=n,
        n_rows=0,
        is_dense=False,
        n_classes=n_classes,
        n_inputs=dims[-1],
        width=options.n_components or dims[-1],
        n_selection=min(n, max(limit or n, 5 * n_classes)) if selects else 0,
        n_mixer=0 if not options.fused else 2 * n * widths + 4 * options.mixer.hidden * widths,
    )
    memory.require_memory(sizes, options.memory_limit)


@dataclass(frozen=True)
class _Base:
    """A base session: samples with class indices from 0, and how to choose by them."""

    X: Features
    targets: Indices
    weight: Array
    options: HeadOptions
    dims: tuple[int, ...]
    kernel_map: KernelMap

    def settle(self, progress: Progress) -> Settled:
        options, candidates = self.options, self._candidates()
        if len(candidates) == 1 and options.ridge != "auto":
            return Settled(options, self._lift(candidates[0]), float(options.ridge))
        split = split_base_session(
            self.targets, options.max_selection_samples, self.kernel_map.seed
        )
        paths: dict[LayerTrial, tuple[RidgeTrial, ...]] = {}
        for layers in candidates:
            progress("choosing λ and blocks", len(paths), len(candidates))
            trial, path = self._attempt(layers, split)
            paths[trial] = path
        progress("choosing λ and blocks", len(candidates), len(candidates))
        chosen = best_layers(list(paths))
        return Settled(
            options,
            self._lift(chosen.layers),
            chosen.ridge,
            ridge_path=paths[chosen] if options.ridge == "auto" else (),
            layer_path=tuple(paths) if options.selects_layers else (),
            ridge_basis=self._basis() if options.ridge == "auto" else None,
        )

    def _basis(self) -> RidgeBasis | None:
        n_images, n_classes = round(float(self.weight.sum())), int(self.targets.max()) + 1
        return RidgeBasis(n_images, n_classes) if n_classes < FEW_CLASSES else None

    def _candidates(self) -> list[tuple[int, ...]]:
        """Return the sets of layers to try; without a mixer, one that is empty."""
        if not self.options.fused:
            return [()]
        if not self.options.selects_layers:
            return [tuple(int(layer) for layer in self.options.layers)]
        candidates = layer_candidates(len(self.dims))
        # one class: the mixer is the identity, whichever layers it could read
        return candidates if int(self.targets.max()) else candidates[:1]

    def _attempt(
        self, layers: tuple[int, ...], split: HoldOut
    ) -> tuple[LayerTrial, tuple[RidgeTrial, ...]]:
        """Train a mixer on the split's training part and choose λ for it on the rest."""
        lift, ridge = self._lift(layers, split.train), self.options.ridge
        best, trials = search_ridge(
            lambda chosen: lift(self.X[chosen]),
            self.targets,
            self.weight,
            split,
            svm_cost=self.options.svm_cost,
            candidates=RIDGE_CANDIDATES if ridge == "auto" else (float(ridge),),
            beyond=ridge == "auto",
        )
        return LayerTrial(layers, *best), tuple(trials)

    def _lift(self, layers: tuple[int, ...], rows: Indices | slice = slice(None)) -> Lift:
        """Return the kernel map behind a mixer of these layers, trained on these rows."""
        if not self.options.fused:
            return Lift(None, self.kernel_map)
        mixer = train_mixer(
            self.X[rows],
            self.targets[rows],
            self.weight[rows],
            layer_dims=self.dims,
            layers=layers,
            options=self.options.mixer,
            seed=self.kernel_map.seed,
        )
        return Lift(mixer, self.kernel_map)
