"""Say of one layer of a model which parameters it has, and where their numbers come from.

The parameters are objects that live as long as the model; while the layer is absent they are empty. Loading
fills a block, binding makes the parameters views of it: nothing is copied, and whoever holds them sees it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

import torch
from torch import Tensor, nn

from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.resident.blocks import Spot, place
from comfyserverless.models.resident.transfer import Block, Transfer
from comfyserverless.residency.policy import LayerKey


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a parameter comes from a file.

    source: the tensor's name in `weights`; shape, dtype: of the parameter; rows: the part of the tensor that is
    meant; is_transposed: the file holds it with its two sides swapped.
    """

    weights: Weights
    source: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    rows: tuple[int, int] | None = None
    is_transposed: bool = False

    def read_into(self, file: int, target: Tensor) -> None:
        """Fill contiguous CPU memory of the parameter's shape and type. Raises ModelFileError."""
        if not self.is_transposed:
            self.weights.load_into(file, self.source, target, self.rows)
            return
        turned = torch.empty(self.shape[::-1], dtype=self.dtype)
        self.weights.load_into(file, self.source, turned, self.rows)
        target.copy_(turned.t())


class Layer(ABC):
    """One layer of one model.

    parameters: by name, all empty while the layer is absent; size_bytes: of the tensors; block_bytes: of the
    block that they lie in; block: None while the layer is absent; recipes: of the parameters that come from a
    file as they are.
    """

    block: Block | None = None
    recipes: Mapping[str, Recipe] = MappingProxyType({})

    def __init__(
        self, tensors: Mapping[str, tuple[tuple[int, ...], torch.dtype]], device: torch.device
    ) -> None:
        spots, self.block_bytes = place(list(tensors.values()))
        self.spots: Mapping[str, Spot] = dict(zip(tensors, spots, strict=True))
        self.parameters = {name: _new_parameter(spot.dtype, device) for name, spot in self.spots.items()}
        self.size_bytes = sum(spot.size_bytes for spot in spots)

    @abstractmethod
    def load(self, key: LayerKey, transfer: Transfer) -> Block:
        """Return a block on the device with all tensors of the layer; runs on the loader's thread.

        Raises ModelFileError if the file cannot be read or is another one by now.
        """

    def bind(self, block: Block) -> None:
        """Make the parameters views of a loaded block."""
        self.block = block
        for name, spot in self.spots.items():
            self.parameters[name].data = spot.view(block.data)

    def release(self) -> None:
        """Make the parameters empty; the memory goes when nothing else holds a view."""
        self.block = None
        for parameter in self.parameters.values():
            parameter.data = _empty(parameter.dtype, parameter.device)


class FileLayer(Layer):
    """A layer as it is in a file."""

    def __init__(self, recipes: Mapping[str, Recipe], device: torch.device) -> None:
        super().__init__({name: (recipe.shape, recipe.dtype) for name, recipe in recipes.items()}, device)
        self.recipes = recipes

    def load(self, key: LayerKey, transfer: Transfer) -> Block:
        """Read the layer (see Layer.load)."""
        return transfer.deliver(key, self.block_bytes, self._read)

    def _read(self, block: Tensor) -> None:
        by_file: dict[int, list[str]] = {}
        for name, recipe in self.recipes.items():
            by_file.setdefault(id(recipe.weights), []).append(name)
        for names in by_file.values():
            with self.recipes[names[0]].weights.reading() as file:
                for name in names:
                    self.recipes[name].read_into(file, self.spots[name].view(block))


def split_layers(
    recipes: Mapping[str, Recipe], order: Sequence[Sequence[str]], device: torch.device
) -> list[FileLayer]:
    """Divide a model's parameters into layers in execution order.

    order: for each layer the modules whose parameters it has (the innermost one that is listed decides); what
    is in none of them is in the first layer.
    """
    owners = {prefix: at for at, prefixes in enumerate(order) for prefix in prefixes}
    parts: list[dict[str, Recipe]] = [{} for _ in order]
    for name, recipe in recipes.items():
        stem = name
        while stem and stem not in owners:
            stem = stem.rpartition(".")[0]
        parts[owners.get(stem, 0)][name] = recipe
    return [FileLayer(part, device) for part in parts]


def _new_parameter(dtype: torch.dtype, device: torch.device) -> nn.Parameter:
    with torch.inference_mode(False):
        return nn.Parameter(_empty(dtype, device), requires_grad=False)


@cache
def _empty(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the tensor that stands for absent bytes, one for each type and device."""
    with torch.inference_mode(False):
        return torch.empty(0, dtype=dtype, device=device)
