"""Recognise union ControlNets, and read from shapes what they have beside a ControlNet's structure.

The names of these tensors are the same in every layout, also the misspelt one.
"""

from __future__ import annotations

from typing import Any

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.unet_layout import UnetLayout

TASK_EMBEDDING = "task_embedding"
_PREFIXES = ("transformer_layes.", "spatial_ch_projs.", "control_add_embedding.")
_HEADS = 8
"""Of the attention between hints, in all releases; the tensors do not tell."""


def is_union(weights: Weights) -> bool:
    """Tell whether a ControlNet's tensors are those of a union ControlNet."""
    return TASK_EMBEDDING in weights or "control_add_embedding.linear_1.weight" in weights


def is_union_name(name: str) -> bool:
    """Tell whether a tensor is one of those that only union ControlNets have."""
    return name == TASK_EMBEDDING or name.startswith(_PREFIXES)


def union_config(weights: Weights, layout: UnetLayout) -> dict[str, Any]:
    """Return the arguments of ControlNetUnionModel that ControlNetModel does not have.

    Raises ModelFileError if the widths make up no union ControlNet.
    """
    types = weights.length(TASK_EMBEDDING, 0)
    encoded = weights.length("control_add_embedding.linear_1.weight", 1)
    channels = layout.level_channels[0]
    if not types or encoded % types or channels % _HEADS:
        raise ModelFileError(
            f"{weights.path}: this union ControlNet has {types} types, encoded in {encoded} numbers, and"
            f" {channels} channels, which do not fit together"
        )
    return {
        "num_control_type": types,
        "addition_time_embed_dim": encoded // types,
        "num_trans_channel": channels,
        "num_trans_head": _HEADS,
        "num_trans_layer": _count_layers(weights),
        "num_proj_channel": channels,
    }


def _count_layers(weights: Weights) -> int:
    count = 0
    while f"transformer_layes.{count}.ln_1.weight" in weights:
        count += 1
    return count
