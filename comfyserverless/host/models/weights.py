"""Read weights for packs that ask for tensors; nothing else in this room does."""

from __future__ import annotations

from torch import Tensor

from comfyserverless.core.values import FileRef
from comfyserverless.models.families.registry import find_network
from comfyserverless.models.reading.identity import opened


def network_weights(file: FileRef, prefix: str, filter_prefix: str = "") -> dict[str, Tensor]:
    """Read the tensors of a diffusion network; names get `prefix`, and only those that begin so are read."""
    with opened(file) as root:
        network = find_network(root)
        return {
            prefix + name: network.load(name) for name in network if (prefix + name).startswith(filter_prefix)
        }


def all_weights(file: FileRef) -> dict[str, Tensor]:
    """Read all tensors of a file."""
    with opened(file) as root:
        return {name: root.load(name) for name in root}
