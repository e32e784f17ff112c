"""Run the upscalers of other architectures with the spandrel package, if it is installed.

spandrel recognises a network by the names of its tensors, and builds it together with its weights. The keeper
then takes the weights, as one layer: they leave and come back like any others, read from the file each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.resident.layers import Layer
from comfyserverless.models.resident.residence import Residence
from comfyserverless.models.resident.run import ResidentModel, Title
from comfyserverless.models.resident.skeleton import Runner, Skeleton
from comfyserverless.models.resident.transfer import Block, Transfer
from comfyserverless.residency.policy import LayerKey


@dataclass(frozen=True, slots=True)
class ForeignUpscaler:
    """A network that spandrel built; scale: per side; channels: of the pictures."""

    runner: Runner[nn.Module]
    scale: int
    channels: int


class _Adapter(nn.Module):
    """A network with what spandrel does around it, which pads and cuts."""

    def __init__(self, descriptor: Any) -> None:
        super().__init__()
        self.model: nn.Module = descriptor.model
        self._descriptor = descriptor

    def forward(self, picture: Tensor) -> Tensor:
        """Return [1, C, H * scale, W * scale] of [1, C, H, W]."""
        return torch.cat([self._descriptor(item) for item in torch.split(picture, 1)])


class _WholeLayer(Layer):
    """All parameters of a network, from a file under names that only spandrel knows."""

    def __init__(self, weights: Weights, network: nn.Module, device: torch.device) -> None:
        super().__init__({name: (tuple(each.shape), torch.float32) for name, each in _named(network)}, device)
        self._weights = weights

    def load(self, key: LayerKey, transfer: Transfer) -> Block:
        """Read the file (see Layer.load)."""
        return transfer.deliver(key, self.block_bytes, self._read)

    def _read(self, block: Tensor) -> None:
        for name, parameter in _named(_Adapter(_describe(self._weights))):
            self.spots[name].view(block).copy_(parameter)


def load_foreign(root: Weights, residence: Residence) -> ForeignUpscaler:
    """Make the upscaler of a file ready to run.

    Raises ModelFileError if spandrel is not installed, does not know the network, or knows it as another kind.
    """
    descriptor = _describe(root)
    network = _Adapter(descriptor)
    layer = _WholeLayer(root, network, residence.device)
    for _, parameter in _named(network):
        parameter.data = torch.empty(0)
    network = network.to(residence.device).eval().requires_grad_(False)
    base = ResidentModel(f"upscaler {root.path} {root.version}", root.path, [layer], title=Title("upscaler"))
    runner: Runner[nn.Module] = Runner(residence.keeper, Skeleton(network), base, {})
    return ForeignUpscaler(runner, descriptor.scale, descriptor.input_channels)


def _describe(root: Weights) -> Any:
    """Have spandrel build the network of a file with its weights."""
    try:
        import spandrel
    except (ImportError, RuntimeError) as exc:  # torch raises the latter where torchvision does not fit it
        raise ModelFileError(
            f"{root.path}: is no upscale model of the ESRGAN family; other architectures need the package"
            f" spandrel, which cannot be imported ({exc}): install comfyserverless[upscale]"
        ) from exc
    tensors: Mapping[str, Tensor] = {name: root.load(name) for name in root}
    try:
        descriptor: Any = spandrel.ModelLoader().load_from_state_dict(
            spandrel.canonicalize_state_dict(dict(tensors))
        )
    except spandrel.UnsupportedModelError as exc:
        raise ModelFileError(f"{root.path}: is no upscale model that spandrel knows") from exc
    if not isinstance(descriptor, spandrel.ImageModelDescriptor):
        raise ModelFileError(f"{root.path}: is a network that takes more than one picture, no upscale model")
    return descriptor


def _named(network: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return list(network.named_parameters())
