"""Give a handle with LoRAs or merges its own copy of the layers that they change; all else stays the base's.

A private layer holds the changed parameters only. It is computed from the base's layer when it is loaded, so it
can leave and come back like any other, and the base is never loaded again for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from comfyserverless.models.lora.merge import merge
from comfyserverless.models.lora.mixing import Change
from comfyserverless.models.resident.layers import Layer
from comfyserverless.models.resident.run import ResidentModel, Title
from comfyserverless.models.resident.transfer import Block, Transfer
from comfyserverless.residency.policy import LayerKey


class PatchedLayer(Layer):
    """The parameters of a base's layer that LoRAs and merges change."""

    def __init__(self, base: Layer, changes: Mapping[str, Sequence[Change]], device: torch.device) -> None:
        super().__init__({name: (base.spots[name].shape, base.spots[name].dtype) for name in changes}, device)
        self._base = base
        self._changes = changes

    def load(self, key: LayerKey, transfer: Transfer) -> Block:
        """Make the changes (see Layer.load). Pre: the base's layer is bound, and stays while this runs."""
        return transfer.make(self.block_bytes, self._fill)

    def _fill(self, block: Tensor) -> None:
        for name, changes in self._changes.items():
            self.spots[name].view(block).copy_(merge(self._base.parameters[name], changes))


def patch_model(
    base: ResidentModel, changes: Mapping[str, Sequence[Change]], device: torch.device, variant: str
) -> ResidentModel:
    """Return the private layers of a base, one for each of its own; most may be empty.

    changes: of each parameter that has any, by its name; variant: what people call them.
    """
    layers = [
        PatchedLayer(layer, {name: changes[name] for name in layer.parameters if name in changes}, device)
        for layer in base.layers
    ]
    title = Title(base.title.kind, variant)
    return ResidentModel(f"{base.name} with LoRAs", base.group, layers, title=title)
