"""Register models with the keeper of a worker: what every loader of a model needs of its surroundings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from comfyserverless.models.modules import compute_dtype
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.resident.keeper import Keeper
from comfyserverless.models.resident.layers import Recipe, split_layers
from comfyserverless.models.resident.run import ResidentModel, Title
from comfyserverless.models.resident.skeleton import Skeleton, Skeletons


@dataclass(frozen=True, slots=True)
class Residence:
    """Where models live: the keeper of their weights, and the modules that they run in."""

    keeper: Keeper
    skeletons: Skeletons = field(default_factory=Skeletons)

    @property
    def device(self) -> torch.device:
        """Return the device that models compute on."""
        return self.keeper.transfer.device

    def recipes(
        self,
        skeleton: Skeleton[Any],
        weights: Weights,
        sources: Mapping[str, str],
        dtype: torch.dtype | None = None,
    ) -> dict[str, Recipe]:
        """Return where each parameter of a module comes from; sources: its tensor's name in `weights`.

        dtype: that it is kept in, None for the type that diffusion models compute in. A tensor may have sides
        of length 1 more at its end. Raises ModelFileError if tensors are missing or of another shape.
        """
        shapes = {name: weights.shape(source) for name, source in sources.items()}
        fitting = {
            name: wanted
            for name, wanted in skeleton.shapes.items()
            if name in shapes and shapes[name] == (*wanted, *(1,) * (len(shapes[name]) - len(wanted)))
        }
        skeleton.check(shapes | fitting, weights.path)
        kept = dtype or compute_dtype(self.device)
        return {name: Recipe(weights, sources[name], shape, kept) for name, shape in skeleton.shapes.items()}

    def register(
        self, kind: str, recipes: Mapping[str, Recipe], order: Sequence[Sequence[str]]
    ) -> ResidentModel:
        """Return the layers of a model of one file, none of them loaded; kind: which model of the file.

        Raises ModelFileError for tensors of whole numbers.
        """
        weights = next(iter(recipes.values())).weights
        for recipe in recipes.values():
            recipe.weights.check_real(recipe.source)
        layers = split_layers(recipes, order, self.device)
        name = f"{kind} {weights.path} {weights.version}"
        profile = self.keeper.profiles.load(name, len(layers))
        return ResidentModel(name, weights.path, layers, profile, Title(kind))
