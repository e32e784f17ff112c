"""Read U-Nets and ControlNets that are stored under diffusers' names: give tensors their original names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.unet_layout import FIXED_NAMES, MIDDLE_NAMES, RESNET_NAMES
from comfyserverless.models.unions.layout import is_union_name

_FIXED: Mapping[str, str] = {
    **{new: old for old, new in FIXED_NAMES.items()},
    "add_embedding.linear_1": "label_emb.0.0",
    "add_embedding.linear_2": "label_emb.0.2",
    "controlnet_cond_embedding.conv_in": "input_hint_block.0",
    "controlnet_cond_embedding.conv_out": "input_hint_block.14",
}
_RESNET = {new: old for old, new in RESNET_NAMES.items()}
_MIDDLE = {new: old for old, new in MIDDLE_NAMES.items()}

_BLOCK = re.compile(r"\d+\.(resnets|attentions|downsamplers|upsamplers)\.\d+\..+\.", re.ASCII)
_NUMBERED: Mapping[str, re.Pattern[str]] = {
    "down_blocks": _BLOCK,
    "up_blocks": _BLOCK,
    "mid_block": re.compile(r"(resnets\.[01]|attentions\.0)\..+\."),
    "controlnet_down_blocks": re.compile(r"\d+\.", re.ASCII),
    "controlnet_cond_embedding": re.compile(r"blocks\.\d+\.", re.ASCII),
}
"""How names go on that can be translated; a file may hold others."""


def has_diffusers_names(weights: Weights) -> bool:
    """Tell whether a file holds a U-Net, or a ControlNet, under diffusers' names."""
    return "conv_in.weight" in weights and "down_blocks.0.resnets.0.norm1.weight" in weights


def with_original_names(weights: Weights) -> Weights:
    """Return the tensors of a U-Net or ControlNet under their original names; unknown ones are left out."""
    blocks = 0
    while f"down_blocks.0.resnets.{blocks}.norm1.weight" in weights:
        blocks += 1
    pairs = {name: _original(weights, name, blocks) for name in weights}
    return weights.renamed({name: original for name, original in pairs.items() if original is not None})


def _original(weights: Weights, name: str, blocks: int) -> str | None:
    module, _, leaf = name.rpartition(".")
    if module in _FIXED:
        return f"{_FIXED[module]}.{leaf}"
    if is_union_name(name):
        return name
    root, *rest = name.split(".")
    known = _NUMBERED.get(root)
    if known is None or not known.match(".".join(rest)):
        return None
    if root == "controlnet_down_blocks":
        return f"zero_convs.{rest[0]}.0.{leaf}"
    if root == "controlnet_cond_embedding":
        return f"input_hint_block.{2 * int(rest[1]) + 2}.{leaf}"
    if root == "mid_block":
        return f"middle_block.{_MIDDLE['.'.join(rest[:2])]}.{_inner(rest[2:])}"
    level, kind, at = int(rest[0]), rest[1], int(rest[2])
    first = level * (blocks + 1)
    if kind == "downsamplers":
        return f"input_blocks.{first + blocks + 1}.0.op.{leaf}"
    if kind == "upsamplers":
        place = 2 if f"up_blocks.{level}.attentions.0.norm.weight" in weights else 1
        return f"output_blocks.{first + blocks}.{place}.conv.{leaf}"
    number = first + at + 1 if root == "down_blocks" else first + at
    stem = "input_blocks" if root == "down_blocks" else "output_blocks"
    return f"{stem}.{number}.{0 if kind == 'resnets' else 1}.{_inner(rest[3:])}"


def _inner(rest: list[str]) -> str:
    layer = ".".join(rest[:-1])
    return f"{_RESNET.get(layer, layer)}.{rest[-1]}"
