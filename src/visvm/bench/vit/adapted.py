"""An encoder with what was trained in it: images in, layer features out, as of any encoder."""

import hashlib

import numpy as np
import torch

from visvm.bench.vit import modules
from visvm.bench.vit.modules import Module
from visvm.bench.vit.network import NOTHING, Network
from visvm.encoders.encoder import Encoder, FinalFeatures, LayerFeatures, Pixels, Projected
from visvm.encoders.pipeline import BATCH_SIZE


class AdaptedEncoder:
    """A frozen network, and a module that is frozen by now.

    Parameters
    ----------
    encoder : Encoder
        Whose weights the network has.
    network : Network
    kind : str
        Of the module.
    module : dict of arrays
    """

    def __init__(self, encoder: Encoder, network: Network, kind: str, module: Module) -> None:
        self.name = f"{encoder.name} with {kind}"
        self.layer_dims, self.preprocessing = encoder.layer_dims, encoder.preprocessing
        summed = hashlib.sha256(f"{encoder.digest} {kind}".encode())
        for name in sorted(module):
            summed.update(f"{name} {module[name].shape}".encode() + module[name].tobytes())
        self.digest = summed.hexdigest()
        added = modules.added(kind, modules.as_tensors(module, network.device))
        # scales and shifts cost nothing within the weights
        self._network = network.folded(added) if kind == "ssf" else network
        self._added = NOTHING if kind == "ssf" else added

    def encode(self, pixels: Pixels) -> LayerFeatures:
        """Return layer features of images, (n, 3, size, size) → (n, sum of layer_dims)."""
        images = torch.tensor(np.ascontiguousarray(pixels))
        with torch.inference_mode():
            parts = [
                self._network.layers(images[begin : begin + BATCH_SIZE], self._added)
                for begin in range(0, len(images), BATCH_SIZE)
            ]
        return np.asarray(torch.cat(parts).cpu().numpy())

    def project(self, final: FinalFeatures) -> Projected:
        """Return the network's own output, (n, layer_dims[-1]) → (n, p)."""
        given = torch.tensor(final, device=self._network.device)
        with torch.inference_mode():
            return np.asarray(self._network.tail(given).cpu().numpy())
