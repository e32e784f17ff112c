"""Make the tensors of a model with its LoRAs and merges, under the names and in the types of its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.lora.merge import merge
from comfyserverless.models.lora.mixing import Change
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.resident.run import ResidentModel

_AUTOENCODER_PREFIXES = ("first_stage_model.", "vae.", "")


def changed_tensors(
    model: ResidentModel, names: Mapping[str, str], changes: Mapping[str, Sequence[Change]]
) -> dict[str, Tensor]:
    """Return the tensors of a model on the CPU, by their names in its file.

    names: from the name in the file to the parameter's name; changes: of each parameter that has any. Changes
    are computed in float32 from the file's numbers. Raises ModelFileError if the file cannot be read.
    """
    recipes = {name: recipe for layer in model.layers for name, recipe in layer.recipes.items()}
    made: dict[str, Tensor] = {}
    for stored_name, name in names.items():
        recipe = recipes.get(name)
        if recipe is None:
            continue
        tensor = torch.empty(recipe.shape)
        with recipe.weights.reading() as file:
            recipe.read_into(file, tensor)
        if name in changes:
            tensor = merge(tensor, changes[name])
        info = recipe.weights.info(recipe.source)
        made[stored_name] = tensor.to(info.dtype).reshape(info.shape).contiguous()
    return made


def autoencoder_tensors(root: Weights) -> dict[str, Tensor]:
    """Return the tensors of the autoencoder in a file, without prefix. Raises ModelFileError if it has none."""
    for prefix in _AUTOENCODER_PREFIXES:
        part = root.below(prefix)
        if "encoder.conv_in.weight" in part and "decoder.conv_in.weight" in part:
            return {name: part.load(name) for name in part}
    raise ModelFileError(f"{root.path}: holds no autoencoder")
