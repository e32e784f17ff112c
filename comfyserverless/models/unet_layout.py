"""Read the structure of a latent-diffusion U-Net (or the encoder half in a ControlNet) from its shapes.

The layout is that of the original releases: `input_blocks.N`, `middle_block.N`, `output_blocks.N`. Nothing
is taken from the exact widths of released models, so small models load by the same code.
"""

from __future__ import annotations

from dataclasses import dataclass

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.reading.weights import Weights

HEAD_COUNT = 8
"""Heads at every level of models with convolutional projections (the Stable Diffusion 1 convention)."""
HEAD_WIDTH = 64
"""Width of a head in models with linear projections (Stable Diffusion 2 and XL)."""

RESNET_NAMES = {
    "in_layers.0": "norm1",
    "in_layers.2": "conv1",
    "emb_layers.1": "time_emb_proj",
    "out_layers.0": "norm2",
    "out_layers.3": "conv2",
    "skip_connection": "conv_shortcut",
}
FIXED_NAMES = {
    "time_embed.0": "time_embedding.linear_1",
    "time_embed.2": "time_embedding.linear_2",
    "label_emb.0.0": "class_embedding.linear_1",
    "label_emb.0.2": "class_embedding.linear_2",
    "input_blocks.0.0": "conv_in",
    "out.0": "conv_norm_out",
    "out.2": "conv_out",
    "middle_block_out.0": "controlnet_mid_block",
}
_LEAST_PARTS = 4
"""Parts of the shortest name inside a block: block, number, layer, `weight` or `bias`."""

MIDDLE_NAMES = {"0": "resnets.0", "1": "attentions.0", "2": "resnets.1"}


@dataclass(frozen=True, slots=True)
class UnetLayout:
    """The structure of a U-Net; per-level tuples run from the finest level to the coarsest.

    input_depths, output_depths: transformer blocks of each residual block of a level, as they run, 0 where a
    level has no attention; middle_depth: 0 for a middle block of one residual block, None without one;
    adm_width: of the vector that is added to the time embedding, None without one; is_linear: whether attention
    projects with linear layers.
    """

    in_channels: int
    out_channels: int
    level_channels: tuple[int, ...]
    blocks_per_level: int
    input_depths: tuple[tuple[int, ...], ...]
    output_depths: tuple[tuple[int, ...], ...]
    middle_depth: int | None
    context_width: int
    adm_width: int | None
    is_linear: bool

    @property
    def level_depths(self) -> tuple[int, ...]:
        """Return the transformer blocks of the first attention of each level, 0 where a level has none."""
        return tuple(depths[0] for depths in self.input_depths)

    @property
    def is_even(self) -> bool:
        """Tell whether all attentions of a level have the same depth, on the way down and up."""
        pairs = zip(self.input_depths, self.output_depths, strict=True)
        return all(len({*down, *up}) == 1 for down, up in pairs)

    def heads(self) -> tuple[int, ...]:
        """Return the number of attention heads at each level."""
        return tuple(max(1, c // HEAD_WIDTH) if self.is_linear else HEAD_COUNT for c in self.level_channels)


def read_layout(weights: Weights) -> UnetLayout:
    """Return the structure of the U-Net in `weights` (names without any prefix).

    Raises ModelFileError if a needed tensor is missing, or for structures that nothing here can run.
    """
    levels = _read_levels(weights)
    down = tuple(tuple(depth for _, depth in level) for level in levels)
    blocks = {len(level) for level in levels}
    widths = [{channels for channels, _ in level} for level in levels]
    if blocks != {len(levels[0])} or not levels[0] or any(len(width) != 1 for width in widths):
        raise ModelFileError(f"{weights.path}: the blocks of one U-Net level differ ({levels})")
    up = _output_depths(weights, down)
    for one in (*down, *up):
        if 0 in one and any(one):
            raise ModelFileError(f"{weights.path}: only some blocks of a U-Net level have attention ({one})")
    middle = _middle_depth(weights)
    if middle and down[-1][0] not in (0, middle):
        raise ModelFileError(
            f"{weights.path}: the middle block has {middle} transformer blocks, the levels {down}"
        )
    in_channels = weights.length("input_blocks.0.0.weight", 1)
    attention = _first_attention(weights)
    return UnetLayout(
        in_channels=in_channels,
        out_channels=weights.length("out.2.weight", 0) if "out.2.weight" in weights else in_channels,
        level_channels=tuple(level[0][0] for level in levels),
        blocks_per_level=blocks.pop(),
        input_depths=down,
        output_depths=up,
        middle_depth=middle,
        context_width=weights.length(f"{attention}.transformer_blocks.0.attn2.to_k.weight", 1),
        adm_width=weights.length("label_emb.0.0.weight", 1) if "label_emb.0.0.weight" in weights else None,
        is_linear=len(weights.shape(f"{attention}.proj_in.weight")) == 2,
    )


def unet_names(layout: UnetLayout, weights: Weights) -> dict[str, str]:
    """Map each tensor name of the original layout to its name in diffusers; unknown names are left out."""
    renamed = {name: _rename(layout.blocks_per_level, name) for name in weights}
    return {old: new for old, new in renamed.items() if new is not None}


def _read_levels(weights: Weights) -> list[list[tuple[int, int]]]:
    """Return (channels, transformer depth) of each residual block, by level."""
    levels: list[list[tuple[int, int]]] = [[]]
    number = 1
    while True:
        block = f"input_blocks.{number}"
        if f"{block}.0.op.weight" in weights:
            levels.append([])
        elif f"{block}.0.out_layers.3.weight" in weights:
            channels = weights.length(f"{block}.0.out_layers.3.weight", 0)
            levels[-1].append((channels, _count(weights, f"{block}.1.transformer_blocks")))
        else:
            return levels
        number += 1


def _output_depths(weights: Weights, down: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Return the depths on the way up by level, the finest first; those of an encoder alone follow it."""
    per_level = len(down[0]) + 1
    if "output_blocks.0.0.in_layers.0.weight" not in weights:
        return tuple((*level, level[-1]) for level in down)
    count = per_level * len(down)
    depths = [_count(weights, f"output_blocks.{number}.1.transformer_blocks") for number in range(count)]
    levels = [tuple(depths[first : first + per_level]) for first in range(0, count, per_level)]
    return tuple(reversed(levels))


def _middle_depth(weights: Weights) -> int | None:
    if "middle_block.0.in_layers.0.weight" not in weights:
        return None
    depth = _count(weights, "middle_block.1.transformer_blocks")
    if depth == 0 and any(f"middle_block.{at}.in_layers.0.weight" in weights for at in (1, 2)):
        raise ModelFileError(f"{weights.path}: the middle block has several residual blocks and no attention")
    return depth


def _first_attention(weights: Weights) -> str:
    """Return the name of the first attention. Raises ModelFileError for a U-Net without any."""
    marks = (name for name in weights if name.endswith(".1.proj_in.weight"))
    found = next(marks, None)
    if found is None:
        raise ModelFileError(f"{weights.path}: the U-Net has no attention, so that no text could guide it")
    return found.removesuffix(".proj_in.weight")


def _count(weights: Weights, stem: str) -> int:
    count = 0
    while f"{stem}.{count}.norm1.weight" in weights:
        count += 1
    return count


def _rename(blocks_per_level: int, name: str) -> str | None:
    module, _, leaf = name.rpartition(".")
    if module in FIXED_NAMES:
        return f"{FIXED_NAMES[module]}.{leaf}"
    parts = name.split(".")
    if len(parts) < _LEAST_PARTS or not parts[1].isdecimal():
        return None
    root, number, *rest = parts
    if root == "middle_block" and number in MIDDLE_NAMES:
        return _inside(f"mid_block.{MIDDLE_NAMES[number]}", rest)
    if root == "input_blocks":
        level, at = divmod(int(number) - 1, blocks_per_level + 1)
        return _rename_block(f"down_blocks.{level}", at, rest)
    if root == "output_blocks":
        level, at = divmod(int(number), blocks_per_level + 1)
        return _rename_block(f"up_blocks.{level}", at, rest)
    return None


def _rename_block(block: str, at: int, rest: list[str]) -> str | None:
    part, inner = rest[0], rest[1:]
    if len(inner) < 2:
        return None
    if inner[0] == "op":
        return f"{block}.downsamplers.0.conv.{inner[-1]}"
    if inner[0] == "conv":
        return f"{block}.upsamplers.0.conv.{inner[-1]}"
    if part == "0":
        return _inside(f"{block}.resnets.{at}", inner)
    return _inside(f"{block}.attentions.{at}", inner) if part == "1" else None


def _inside(module: str, rest: list[str]) -> str:
    """Name a tensor inside a residual block or a transformer; transformers keep their names."""
    layer = ".".join(rest[:-1])
    return f"{module}.{RESNET_NAMES.get(layer, layer)}.{rest[-1]}"
