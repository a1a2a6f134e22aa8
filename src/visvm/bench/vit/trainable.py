"""Which encoders can be trained through, and the networks of these."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from visvm.encoders.catalog import CATALOG
from visvm.encoders.encoder import Encoder
from visvm.encoders.loading import named
from visvm.errors import WeightsError

if TYPE_CHECKING:
    from visvm.bench.vit.network import Network


@dataclass(frozen=True)
class Trainable:
    """An encoder that can be trained through.

    torch takes seconds to import, and its network memory: both wait until a method asks.
    """

    encoder: Encoder

    def network(self, device: str = "cpu") -> "Network":
        """Build the network, on a device of torch."""
        network = _built(self.encoder)
        for name, weight in network.weights.items():
            if not bool(weight.isfinite().all()):
                raise WeightsError(
                    f"{name} of {self.encoder.name} is missing or not finite. "
                    "Get the complete checkpoint.",
                    code="weights-not-finite",
                )
        return network.to(device)


def trainable(encoder: Encoder) -> Trainable | None:
    """Return an encoder as one that can be trained through; None if that is not known of it."""
    if find_spec("torch") is None:
        return None
    bare, form = named(encoder.name)
    if bare in CATALOG:
        whole = form.patches is None and not form.int8
        return Trainable(encoder) if whole else None
    from visvm.encoders.tower import TowerEncoder

    return Trainable(encoder) if isinstance(encoder, TowerEncoder) and encoder.has_cls else None


def _built(encoder: Encoder) -> "Network":
    from visvm.encoders.tower import TowerEncoder

    if isinstance(encoder, TowerEncoder):
        from visvm.bench.vit.towers import from_tower

        return from_tower(encoder)
    from visvm.bench.vit.graphs import from_graph
    from visvm.encoders.onnx import named_graph

    bare, form = named(encoder.name)
    entry = CATALOG[bare]
    return from_graph(named_graph(bare, form), entry.positions[0])
