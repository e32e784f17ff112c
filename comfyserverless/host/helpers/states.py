"""Rename and measure state dicts: tensors by name, as they lie in files of models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor

from comfyserverless.models.unet_layout import FIXED_NAMES, MIDDLE_NAMES, RESNET_NAMES

StateDict = MutableMapping[str, Any]


def state_dict_key_replace(state_dict: StateDict, keys_to_replace: Mapping[str, str]) -> StateDict:
    """Rename entries in place: old name -> new name; names that are not there are passed over."""
    for old, new in keys_to_replace.items():
        if old in state_dict:
            state_dict[new] = state_dict.pop(old)
    return state_dict


def state_dict_prefix_replace(
    state_dict: StateDict, replace_prefix: Mapping[str, str], filter_keys: bool = False
) -> StateDict:
    """Give names that start with an old prefix the new one, in place; with `filter_keys` move those out."""
    target = {} if filter_keys else state_dict
    for old, new in replace_prefix.items():
        for name in [name for name in state_dict if name.startswith(old)]:
            target[new + name[len(old) :]] = state_dict.pop(name)
    return target


def calculate_parameters(sd: Mapping[str, Tensor], prefix: str = "") -> int:
    """Return how many numbers the tensors below a prefix have."""
    return sum(tensor.nelement() for name, tensor in sd.items() if name.startswith(prefix))


def weight_dtype(sd: Mapping[str, Tensor], prefix: str = "") -> torch.dtype | None:
    """Return the type that most numbers below a prefix have; None if there are none."""
    counts: Counter[torch.dtype] = Counter()
    for name, tensor in sd.items():
        if name.startswith(prefix):
            counts[tensor.dtype] += tensor.numel()
    return counts.most_common(1)[0][0] if counts else None


def convert_sd_to(state_dict: StateDict, dtype: torch.dtype) -> StateDict:
    """Convert all tensors in place."""
    for name in list(state_dict):
        state_dict[name] = state_dict[name].to(dtype)
    return state_dict


UNET_MAP_BASIC = {
    (f"{ours}.{kind}", f"{theirs}.{kind}")
    for ours, theirs in {
        **{name: other for name, other in FIXED_NAMES.items() if name != "middle_block_out.0"},
        "label_emb.0.0": "class_embedding.linear_1",
        "label_emb.0.2": "class_embedding.linear_2",
    }.items()
    for kind in ("weight", "bias")
}
"""(name in the original layout, name in diffusers) of what is outside of the blocks of a U-Net."""

_ATTENTION_LEAVES = ("proj_in", "proj_out", "norm")
_TRANSFORMER_LEAVES = (
    *(f"norm{n}.{kind}" for n in (1, 2, 3) for kind in ("weight", "bias")),
    *(f"attn{n}.to_{part}.weight" for n in (1, 2) for part in "qkv"),
    *(f"attn{n}.to_out.0.{kind}" for n in (1, 2) for kind in ("weight", "bias")),
    *(f"ff.net.{part}.{kind}" for part in ("0.proj", "2") for kind in ("weight", "bias")),
)


def unet_to_diffusers(unet_config: Mapping[str, Any]) -> dict[str, str]:
    """Map the names of a U-Net's tensors in diffusers to those of the original layout.

    unet_config: num_res_blocks, channel_mult, transformer_depth, transformer_depth_output and
    transformer_depth_middle as ComfyUI detects them. Empty for a model that is no such U-Net.
    """
    if "num_res_blocks" not in unet_config:
        return {}
    blocks, levels = unet_config["num_res_blocks"], len(unet_config["channel_mult"])
    down, up = list(unet_config["transformer_depth"]), list(unet_config["transformer_depth_output"])
    names: dict[str, str] = {}
    at = 1
    for level in range(levels):
        for number in range(blocks[level]):
            _add_block(names, f"down_blocks.{level}", f"input_blocks.{at}", number, down.pop(0))
            at += 1
        for kind in ("weight", "bias"):
            names[f"down_blocks.{level}.downsamplers.0.conv.{kind}"] = f"input_blocks.{at}.0.op.{kind}"
        at += 1
    _add_middle(names, unet_config.get("transformer_depth_middle", 0))
    at = 0
    for level, count in enumerate(reversed(blocks)):
        for number in range(count + 1):
            depth = up.pop()
            _add_block(names, f"up_blocks.{level}", f"output_blocks.{at}", number, depth)
            if number == count:
                place = 2 if depth > 0 else 1
                for kind in ("weight", "bias"):
                    theirs = f"up_blocks.{level}.upsamplers.0.conv.{kind}"
                    names[theirs] = f"output_blocks.{at}.{place}.conv.{kind}"
            at += 1
    return names | {theirs: ours for ours, theirs in UNET_MAP_BASIC}


def _add_block(names: dict[str, str], theirs: str, ours: str, number: int, depth: int) -> None:
    _add_resnet(names, f"{theirs}.resnets.{number}", f"{ours}.0")
    if depth > 0:
        _add_attention(names, f"{theirs}.attentions.{number}", f"{ours}.1", depth)


def _add_middle(names: dict[str, str], depth: int) -> None:
    for number, theirs in MIDDLE_NAMES.items():
        if theirs.startswith("resnets"):
            _add_resnet(names, f"mid_block.{theirs}", f"middle_block.{number}")
        elif depth > 0:
            _add_attention(names, f"mid_block.{theirs}", f"middle_block.{number}", depth)


def _add_resnet(names: dict[str, str], theirs: str, ours: str) -> None:
    for layer, name in RESNET_NAMES.items():
        for kind in ("weight", "bias"):
            names[f"{theirs}.{name}.{kind}"] = f"{ours}.{layer}.{kind}"


def _add_attention(names: dict[str, str], theirs: str, ours: str, depth: int) -> None:
    for layer in _ATTENTION_LEAVES:
        for kind in ("weight", "bias"):
            names[f"{theirs}.{layer}.{kind}"] = f"{ours}.{layer}.{kind}"
    for block in range(depth):
        for leaf in _TRANSFORMER_LEAVES:
            name = f"transformer_blocks.{block}.{leaf}"
            names[f"{theirs}.{name}"] = f"{ours}.{name}"
