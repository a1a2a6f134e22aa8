"""The header of a model file, format 1, typed.

It has a ``kind``, ``encoder``, ``head``, ``classes``, ``counts``, ``sessions`` and, where they are
known, ``calibrated_classes``, ``site``, ``merged``, ``learned`` (keys of the last sessions,
``Labelled.key``), ``requests`` (that the service has answered), ``change`` (a digest of the last
command, ``changes.noted``), ``events`` (changes other than sessions), ``photos`` (salted digests of
those learned, if the owner wants that: ``remembered.py``) and ``before`` (digest of the file that
this one replaced, where that is kept: ``undo.py``). A file without a ``kind`` is older; its parts
show it.
"""

from dataclasses import asdict
from typing import Annotated, Any, Literal, TypedDict, cast

import msgspec

from visvm.head.lift import MapEntry
from visvm.head.selection import RidgeBasis
from visvm.model.events import Event
from visvm.model.labels import Label
from visvm.model.remembered import RememberedPhotos
from visvm.model.results import SessionReport
from visvm.model.state import AnsweredRequest, EncoderId, FileKind, MergedSite

SessionKey = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
SiteId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")]

NO_TEXT_WEIGHT = 1.0
"""The weight that a head without texts has, which its header leaves out."""


class LayerEntry(TypedDict):
    """A set of blocks that was tried."""

    layers: tuple[int, ...]
    ridge: float
    mse: float
    accuracy: float


class HeadHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the header says about the head: the options, and what was settled."""

    n_components: int | None
    ridge: float | str
    svm_cost: float
    hidden: int
    epochs: int
    learning_rate: float | None
    batch_size: int
    identity_weight: float
    layer_dims: tuple[int, ...]
    layers: tuple[int, ...]
    chosen_ridge: float
    ridge_path: list[dict[str, float]]
    layer_path: list[LayerEntry]
    kernel_map: MapEntry
    form: Literal["thin", "dense"] | None
    solved: bool = True
    optimizer: str = "sgd"  # which early files do not name: there was no other
    ridge_basis: RidgeBasis | None = None  # only where λ may be chosen anew
    text_classes: list[Label] = []  # of which there are texts
    text_weight: float = NO_TEXT_WEIGHT


class JournalNote(msgspec.Struct, frozen=True):
    """How far a session is (``journal.py``)."""

    key: str
    done: int
    unreadable: list[tuple[int, str, str]]
    places: list[int]


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """The header of a file, typed."""

    encoder: EncoderId
    head: HeadHeader
    classes: list[Label]
    counts: list[int]
    sessions: list[SessionReport]
    calibrated_classes: int = 0
    site: SiteId | None = None
    merged: list[MergedSite] = []
    learned: list[SessionKey] = []
    requests: list[AnsweredRequest] = []
    change: SessionKey | None = None
    events: list[Event] = []
    photos: RememberedPhotos | None = None
    before: SessionKey | None = None
    journal: JournalNote | None = None
    kind: FileKind | None = None
    tensors: dict[str, str] = {}
    format: int = 0

    @property
    def kind_by_parts(self) -> FileKind:
        """The kind that the parts make it, also where none is written."""
        if self.journal is not None:
            return "journal"
        if self.head.form is None:
            return "predictor"
        if not self.head.solved:
            return "sums"
        return "site" if self.site and not (self.classes or self.sessions) else "whole"

    def as_dict(self) -> dict[str, Any]:
        """Return the header as JSON has it; msgspec alone would leave out defaults it has read."""
        described = {"sessions": [report_as_dict(each) for each in self.sessions]}
        if self.events:
            described["events"] = [
                as_builtins(asdict(each, dict_factory=_with_lists)) for each in self.events
            ]
        if self.merged:
            described["merged"] = [as_builtins(asdict(each)) for each in self.merged]
        return cast("dict[str, Any]", as_builtins(self) | described)


def report_as_dict(report: SessionReport) -> dict[str, Any]:
    """Return a report as a model file has it; some parts only where it has them."""
    described: dict[str, Any] = as_builtins(asdict(report, dict_factory=_with_lists))
    absent = [
        name for name in ("site", "encoder", "ridge_choice", "estimate") if described[name] is None
    ]
    return {name: value for name, value in described.items() if name not in absent}


def _with_lists(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in items}


def as_builtins(value: Any) -> Any:
    """Return a value as JSON has it, numbers of numpy among them."""
    return msgspec.to_builtins(value, enc_hook=lambda number: number.item())
