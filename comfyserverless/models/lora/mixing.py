"""Mix the weights of another model into a model's own, one parameter at a time.

The other model's weights are read from its file as they are needed, with its own changes; it need not be
resident. A merge is one of the ordered changes of a handle, as a LoRA is.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from comfyserverless.core.values import MergeRef
from comfyserverless.models.resident.layers import Recipe
from comfyserverless.models.resident.run import ResidentModel

_logger = logging.getLogger(__name__)
_NAMED = 3


class Change(Protocol):
    """Something that changes one parameter."""

    def add_to(self, weight: Tensor) -> Tensor:
        """Return a float32 weight changed. Raises ModelFileError if a file cannot be read."""


Changes = Mapping[str, Sequence[Change]]
"""The changes of each parameter that has any, in order, by its name."""


@dataclass(frozen=True, slots=True)
class MixedWeight:
    """A parameter of another model, with its own changes; kept, added: the factors of both weights."""

    recipe: Recipe
    changes: Sequence[Change]
    kept: float
    added: float

    def add_to(self, weight: Tensor) -> Tensor:
        """Return weight * kept + the other weight * added."""
        other = torch.empty(self.recipe.shape, dtype=torch.float32)
        with self.recipe.weights.reading() as file:
            self.recipe.read_into(file, other)
        other = other.to(weight.device)
        for change in self.changes:
            other = change.add_to(other)
        return weight * self.kept + other * self.added


def plan_merge(
    merge: MergeRef, own: ResidentModel, other: ResidentModel, changes: Changes, names: Mapping[str, str]
) -> dict[str, MixedWeight]:
    """Return how each parameter of `own` is mixed with that of `other`.

    changes: those of the other model itself; names: what shares call a parameter, by its own name. What they
    keep as it is has no plan. What the other lacks, or has of another shape, stays as it is, and is logged.
    """
    shapes = {name: spot.shape for layer in own.layers for name, spot in layer.spots.items()}
    recipes = {name: each for layer in other.layers for name, each in layer.recipes.items()}
    fitting = {name for name, shape in shapes.items() if name in recipes and recipes[name].shape == shape}
    if unlike := sorted(set(shapes) - fitting):
        shown = ", ".join(unlike[:_NAMED])
        _logger.warning("%s: %d weights have no like in %s: %s", own.group, len(unlike), other.group, shown)
    planned = {}
    for name in sorted(fitting):
        kept, added = merge.share_of(names.get(name, name))
        if (kept, added) == (1.0, 0.0):
            continue
        planned[name] = MixedWeight(recipes[name], changes.get(name, ()), kept, added)
    return planned
