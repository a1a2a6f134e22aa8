"""All that the base session decides, as one frozen value: λ, the layers, the mixer and the map.

``settle`` looks at the first samples a model ever sees and chooses; nothing is learned yet. What it
returns never changes again: every later session only adds to the sums (``head.py``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from visvm.errors import InputError
from visvm.head import memory
from visvm.head.checks import Labels, is_count, is_filled, is_positive, parameter_error, seed_of
from visvm.head.fusion import OPTIMIZERS, MixerOptions, ResidualMixer, train_mixer
from visvm.head.kernel_map import KernelMap
from visvm.head.lift import Features, Lift
from visvm.head.products import Array, Indices
from visvm.head.selection import (
    HoldOut,
    LayerTrial,
    RidgeTrial,
    best_layers,
    layer_candidates,
    search_ridge,
    split_base_session,
)
from visvm.progress import Progress, silent

MIXER_OPTIONS = tuple(each.name for each in fields(MixerOptions))


@dataclass(frozen=True)
class HeadOptions:
    """What a user may choose about a head.

    Parameters
    ----------
    layer_dims : sequence of int or None
        Widths of the layers that stand side by side in X, the final one last; None is one layer.
    layers : "auto" or sequence of int
        Layers the mixer reads, as 1-based positions in `layer_dims`.
    n_components, ridge, svm_cost, random_state, max_selection_samples, memory_limit
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
    mixer: MixerOptions = field(default_factory=MixerOptions)
    fused: bool = True

    def dims(self, n_features: int) -> tuple[int, ...]:
        """Return the widths of the layers in features of this many columns."""
        if not self.fused or self.layer_dims is None:
            return (n_features,)
        return tuple(int(dim) for dim in self.layer_dims)

    @property
    def parameters(self) -> dict[str, Any]:
        """All of them by name, those of the mixer among them, as ``VisClassifier`` takes them."""
        every = {**vars(self), **vars(self.mixer)}
        return {name: every[name] for name in sorted(every) if name not in ("mixer", "fused")}

    @property
    def selects(self) -> bool:
        """Whether the base session chooses anything on a split."""
        return self.ridge == "auto" or (self.fused and isinstance(self.layers, str))

    def check(self, owner: str) -> None:
        """Refuse a value that is not what it must be, in the name of its `owner`.

        Raises
        ------
        InputError
        """

        def must(holds: bool, name: str, what: str) -> None:
            if not holds:
                value = getattr(self.mixer if name in MIXER_OPTIONS else self, name)
                raise parameter_error(owner, name, value, what)

        width, limit = self.n_components, self.max_selection_samples
        counts = width is None or (is_count(width) and width < 2**31)
        must(counts, "n_components", "a whole number from 1 to 2147483647, or None")
        automatic = isinstance(self.ridge, str) and self.ridge == "auto"
        must(automatic or is_positive(self.ridge), "ridge", "'auto' or a finite number above 0")
        must(is_positive(self.svm_cost), "svm_cost", "a finite number above 0")
        limited = limit is None or is_count(limit)
        must(limited, "max_selection_samples", "a whole number of at least 1, or None")
        fits = self.memory_limit is None or is_positive(self.memory_limit)
        must(fits, "memory_limit", "a number of bytes above 0, or None")
        if not self.fused:
            return
        for name in ("hidden", "epochs", "batch_size"):
            must(is_count(getattr(self.mixer, name)), name, "a whole number of at least 1")
        named = isinstance(self.mixer.optimizer, str) and self.mixer.optimizer in OPTIMIZERS
        must(named, "optimizer", f"one of {', '.join(map(repr, OPTIMIZERS))}")
        rate, weight = self.mixer.learning_rate, self.mixer.identity_weight
        must(rate is None or is_positive(rate), "learning_rate", "None or a finite number above 0")
        must(is_positive(weight, or_zero=True), "identity_weight", "a finite number of at least 0")
        dims = self.layer_dims
        widths = dims is None or (is_filled(dims) and all(is_count(dim) for dim in dims))
        must(widths, "layer_dims", "None or a non-empty sequence of whole numbers of at least 1")
        n_layers = 1 if dims is None else len(dims)
        what = f"'auto' or a sequence of different layers from 1 to {n_layers}"
        must(_are_layers(self.layers, n_layers), "layers", what)


def _are_layers(layers: Any, n_layers: int) -> bool:
    if isinstance(layers, str):
        return layers == "auto"
    counted = is_filled(layers) and all(is_count(each) and each <= n_layers for each in layers)
    return counted and len(set(layers)) == len(layers)


@dataclass(frozen=True, eq=False)
class Settled:
    """What a base session has decided for good.

    Attributes
    ----------
    options : HeadOptions
        By which it was decided.
    lift : Lift
        The mixer and the kernel map.
    ridge : float
        λ.
    ridge_path : tuple of RidgeTrial
        Every λ tried, with its error and accuracy; empty where λ was given.
    layer_path : tuple of LayerTrial
        Every set of layers tried; empty where layers were given.
    """

    options: HeadOptions
    lift: Lift
    ridge: float
    ridge_path: tuple[RidgeTrial, ...] = ()
    layer_path: tuple[LayerTrial, ...] = ()

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that are fused, as 1-based positions; empty without a mixer."""
        return () if self.lift.mixer is None else self.lift.mixer.layers

    @property
    def seed(self) -> int:
        """Where the random map comes from."""
        return self.lift.kernel_map.seed

    def with_options(self, options: HeadOptions) -> "Settled":
        """Return the same choices under other options; a λ given there takes the place of ours."""
        ridge = self.ridge if options.ridge == "auto" else float(options.ridge)
        return replace(self, options=options, ridge=ridge)


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
        Checked by its ``check``.
    weight : array of shape (n,), optional
        How often each sample counts, above zero.
    progress : callable, optional

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
    kernel_map = KernelMap(dims[-1], options.n_components, seed_of(options.random_state))
    weight = np.ones(len(X)) if weight is None else weight
    return _Base(X, targets, weight, options, dims, kernel_map).settle(progress)


def _require_memory(n: int, n_classes: int, dims: Sequence[int], options: HeadOptions) -> None:
    """Refuse a base session that does not fit in memory."""
    widths = sum(dims) + dims[-1]
    limit = options.max_selection_samples
    sizes = memory.SessionSizes(
        n_new=n,
        n_rows=0,
        is_dense=False,
        n_classes=n_classes,
        n_inputs=dims[-1],
        width=options.n_components or dims[-1],
        n_selection=min(n, max(limit or n, 5 * n_classes)) if options.selects else 0,
        n_mixer=0 if not options.fused else 2 * n * widths + 4 * options.mixer.hidden * widths,
    )
    memory.require_memory(sizes, options.memory_limit)


@dataclass(frozen=True)
class _Base:
    """A base session: samples with class indices from 0, and by what to choose."""

    X: Features
    targets: Indices
    weight: Array
    options: HeadOptions
    dims: tuple[int, ...]
    kernel_map: KernelMap

    def settle(self, progress: Progress) -> Settled:
        options, candidates = self.options, self._candidates()
        automatic = options.ridge == "auto"
        settled = Settled(options, Lift(None, self.kernel_map), 0.0)
        layers = candidates[0]
        if len(candidates) > 1 or automatic:
            split = split_base_session(
                self.targets, options.max_selection_samples, self.kernel_map.seed
            )
            outcomes: list[tuple[LayerTrial, list[RidgeTrial]]] = []
            for each in candidates:
                progress("choosing λ and blocks", len(outcomes), len(candidates))
                outcomes.append(self._attempt(each, split))
            progress("choosing λ and blocks", len(candidates), len(candidates))
            trials = [trial for trial, _ in outcomes]
            chosen = best_layers(trials)
            layers = chosen.layers
            settled = replace(
                settled,
                ridge=chosen.ridge,
                ridge_path=tuple(outcomes[trials.index(chosen)][1]) if automatic else (),
                layer_path=tuple(trials)
                if options.fused and isinstance(options.layers, str)
                else (),
            )
        everything = np.arange(len(self.targets))
        lift = Lift(self._mixer(layers, everything), self.kernel_map)
        return replace(settled, lift=lift).with_options(options)

    def _candidates(self) -> list[tuple[int, ...]]:
        layers = self.options.layers
        if not self.options.fused:
            return [()]
        candidates = (
            layer_candidates(len(self.dims))
            if isinstance(layers, str)
            else [tuple(int(layer) for layer in layers)]
        )
        # one class: the mixer is the identity, whichever layers it could read
        return candidates if int(self.targets.max()) else candidates[:1]

    def _attempt(
        self, layers: tuple[int, ...], split: HoldOut
    ) -> tuple[LayerTrial, list[RidgeTrial]]:
        """Train a mixer on the split's training part and choose λ for it on the rest."""
        lift, ridge = Lift(self._mixer(layers, split.train), self.kernel_map), self.options.ridge
        given: dict[str, Any] = (
            {} if ridge == "auto" else {"candidates": (float(ridge),), "beyond": False}
        )
        best, trials = search_ridge(
            lambda chosen: lift(self.X[chosen]),
            self.targets,
            self.weight,
            split,
            svm_cost=self.options.svm_cost,
            **given,
        )
        return LayerTrial(layers, *best), trials

    def _mixer(self, layers: tuple[int, ...], rows: Indices) -> ResidualMixer | None:
        if not self.options.fused:
            return None
        return train_mixer(
            self.X[rows],
            self.targets[rows],
            self.weight[rows],
            layer_dims=self.dims,
            layers=layers,
            options=self.options.mixer,
            seed=self.kernel_map.seed,
        )
