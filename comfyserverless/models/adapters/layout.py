"""Recognise T2I-Adapter files in their namings, and read their structure from shapes.

Full adapters have `conv_in` and two blocks for each level, light ones an entry for each; those of SDXL see
squares of 16 pixels, which tells by the width of their entry.
"""

from __future__ import annotations

import math
import re

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.adapters.network import AdapterLayout, StageLayout
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.residuals import MIDDLE

_BLOCKS_PER_STAGE = 2
_SDXL_ENTRIES = (256, 768)
"""Channels of one square of 16 x 16 pixels, grey or coloured."""
_SDXL_HALVING = 2
"""The only stage of SDXL adapters that halves the size."""
_SDXL_BLOCKS = (3, 5, 8, MIDDLE)
_FINEST_BLOCK, _BLOCKS_PER_LEVEL = 2, 3
_STAGES = 4
_HINT_CHANNELS = (1, 3)

_LIBRARY_BLOCK = re.compile(r"body\.(\d+)\.resnets\.(\d+)\.(.+)", re.ASCII)
_LIBRARY_ENTRY = re.compile(r"body\.(\d+)\.in_conv\.(.+)", re.ASCII)
_PREFIXES = ("adapter.", "")


def find_adapter(root: Weights) -> Weights | None:
    """Return the tensors of a T2I-Adapter under their original names, None if a file is another model's."""
    for prefix in _PREFIXES:
        part = root.below(prefix)
        is_light = "body.0.in_conv.weight" in part and "body.0.out_conv.weight" in part
        is_full = "conv_in.weight" in part and not is_light
        if "body.0.resnets.0.block1.weight" in part:
            part = part.renamed({name: _original_name(name, is_light=is_light) for name in part})
        if (is_light and "body.0.body.0.block1.weight" in part) or (is_full and "body.0.block1.weight" in part):
            return part
    return None


def read_adapter_layout(weights: Weights) -> AdapterLayout:
    """Return the structure of an adapter. Raises ModelFileError if its shapes do not make up a known one."""
    is_light = "body.0.body.0.block1.weight" in weights
    entry = weights.length("body.0.in_conv.weight" if is_light else "conv_in.weight", 1)
    is_sdxl = not is_light and entry in _SDXL_ENTRIES
    unshuffle = 16 if is_sdxl else 8
    stages = _light_stages(weights) if is_light else _full_stages(weights, is_sdxl=is_sdxl)
    hint_channels = entry // unshuffle**2
    if len(stages) != _STAGES or hint_channels not in _HINT_CHANNELS or entry % unshuffle**2:
        raise ModelFileError(
            f"{weights.path}: this T2I-Adapter has {len(stages)} levels and takes {entry} channels, which is"
            " not supported (supported: four levels, grey or coloured pictures)"
        )
    usual = tuple(_FINEST_BLOCK + _BLOCKS_PER_LEVEL * level for level in range(_STAGES))
    return AdapterLayout(
        is_light=is_light,
        hint_channels=hint_channels,
        unshuffle=unshuffle,
        kernel=1 if is_light else math.isqrt(math.prod(weights.shape("body.0.block2.weight")[2:])),
        stages=stages,
        block_numbers=_SDXL_BLOCKS if is_sdxl else usual,
    )


def _light_stages(weights: Weights) -> tuple[StageLayout, ...]:
    return tuple(
        StageLayout(
            in_channels=weights.length(f"body.{level}.in_conv.weight", 1),
            channels=weights.length(f"body.{level}.out_conv.weight", 0),
            blocks=_count(weights, f"body.{level}.body.{{}}.block1.weight"),
            is_halving=level > 0,
            inner_channels=weights.length(f"body.{level}.in_conv.weight", 0),
        )
        for level in range(_count(weights, "body.{}.out_conv.weight"))
    )


def _full_stages(weights: Weights, *, is_sdxl: bool) -> tuple[StageLayout, ...]:
    stages: list[StageLayout] = []
    for first in range(0, _count(weights, "body.{}.block1.weight"), _BLOCKS_PER_STAGE):
        channels = weights.length(f"body.{first}.block1.weight", 0)
        before = stages[-1].channels if stages else weights.length("conv_in.weight", 1)
        is_halving = len(stages) == _SDXL_HALVING if is_sdxl else len(stages) > 0
        has_convolution = f"body.{first}.down_opt.op.weight" in weights
        stages.append(
            StageLayout(
                before, channels, _BLOCKS_PER_STAGE, is_halving=is_halving, has_convolution=has_convolution
            )
        )
    return tuple(stages)


def _count(weights: Weights, pattern: str) -> int:
    count = 0
    while pattern.format(count) in weights:
        count += 1
    return count


def _original_name(name: str, *, is_light: bool) -> str:
    if found := _LIBRARY_BLOCK.fullmatch(name):
        stage, at, rest = int(found[1]), int(found[2]), found[3]
        if is_light:
            return f"body.{stage}.body.{at}.{rest}"
        return f"body.{stage * _BLOCKS_PER_STAGE + at}.{rest}"
    if not is_light and (found := _LIBRARY_ENTRY.fullmatch(name)):
        return f"body.{int(found[1]) * _BLOCKS_PER_STAGE}.in_conv.{found[2]}"
    return name
