"""Make the tensors of a model with its LoRAs and merges.

What nothing changes has the bytes of its file. What is changed has the finer one of two types: the file's, and
the one in which the model runs here; so a model that is saved and loaded again gives the same bits, unless the
file is finer than what it runs in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from comfyserverless.models.exporting.entries import Entry, finer
from comfyserverless.models.lora.merge import merge
from comfyserverless.models.lora.mixing import Change
from comfyserverless.models.resident.layers import Recipe
from comfyserverless.models.resident.run import ResidentModel


def parameter_entries(
    model: ResidentModel, changes: Mapping[str, Sequence[Change]], dtype: torch.dtype | None = None
) -> dict[str, Entry]:
    """Return an entry for each parameter of a model that comes from a file; changes: of each that has any.

    dtype: of what is changed, None for the one that says enough (see the module). Changes are computed in
    float32 from the file's numbers. Making an entry raises ModelFileError if a file cannot be read, or is
    another one by now.
    """
    made = {}
    for layer in model.layers:
        for name, recipe in layer.recipes.items():
            stored = recipe.weights.info(recipe.source).dtype
            changed = dtype or finer(stored, layer.spots[name].dtype)
            kind = changed if name in changes else stored
            made[name] = Entry(kind, recipe.shape, partial(_make, recipe, kind, changes.get(name, ())))
    return made


def network_entries(
    model: ResidentModel,
    names: Mapping[str, str],
    changes: Mapping[str, Sequence[Change]],
    dtype: torch.dtype | None = None,
) -> dict[str, Entry]:
    """Return the entries of a diffusion network under the names and shapes of the original layout.

    names: from the original name to the parameter's; changes, dtype: see parameter_entries.
    """
    recipes = {name: recipe for layer in model.layers for name, recipe in layer.recipes.items()}
    entries = parameter_entries(model, changes, dtype)
    return {
        original: entries[name].reshaped(recipes[name].weights.info(recipes[name].source).shape)
        for original, name in names.items()
        if name in entries
    }


def clip_scale(model: ResidentModel) -> Entry | None:
    """Return the scale that the file of a text model holds beside its parameters, None without one."""
    weights = next(recipe.weights for layer in model.layers for recipe in layer.recipes.values())
    if "logit_scale" not in weights:
        return None
    info = weights.info("logit_scale")
    return Entry(info.dtype, info.shape, partial(weights.load, "logit_scale"))


def _make(recipe: Recipe, dtype: torch.dtype, changes: Sequence[Change]) -> Tensor:
    tensor = torch.empty(recipe.shape, dtype=torch.float32 if changes else dtype)
    with recipe.weights.reading() as file:
        recipe.read_into(file, tensor)
    return merge(tensor, changes).to(dtype) if changes else tensor
