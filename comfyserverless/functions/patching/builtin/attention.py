"""Make self-attention of U-Nets cheaper, or weigh its parts: tiles, merged tokens, factors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from comfyserverless.functions.patching.options import SCRATCH, OptionsBuilder, stream_of

Options = Mapping[str, Any]

_CELL_PX = 8
_LEAST_TILE_PX = 32
_PAIR = 2
"""Of each 2 x 2 cells one stays, at least, when tokens are merged."""


def multiply(builder: OptionsBuilder, attention: str, q: float, k: float, v: float, out: float) -> None:
    """Multiply what an attention (`attn1`, `attn2`) projects its queries, keys, values and results to."""
    builder.multiply_attention(attention, (q, k, v, out))


def tile(builder: OptionsBuilder, tile_size: int, swap_size: int, max_depth: int, scale_depth: bool) -> None:
    """Let the queries of a tile look at a share of the cells, in levels halved at most `max_depth` times.

    tfernd 2023, HyperTile, as ComfyUI has it: queries are cut into tiles of the map seen W cells high and H
    wide; keys and values are not, so each tile gets a run of them, in order. tile_size: pixels that a tile has
    at least on each side; swap_size: how many sizes of tiles take turns; scale_depth: tiles of deeper levels
    are as large in pixels of the picture.
    """
    place = f"hypertile {builder.number}"
    least = max(_LEAST_TILE_PX, tile_size) // _CELL_PX
    builder.draw()

    def cut(query: Tensor, key: Tensor, value: Tensor, options: Options) -> tuple[Tensor, Tensor, Tensor]:
        height, width = options["original_shape"][-2:]
        levels = [(height / 2**depth) * (width / 2**depth) for depth in range(max_depth + 1)]
        cells = query.shape[1]
        if cells not in levels:
            return query, key, value
        sides = round(math.sqrt(cells * (width / height))), round(math.sqrt(cells / (width / height)))
        factor = 2 ** levels.index(cells) if scale_depth else 1
        with stream_of(options) as generator:
            rows, columns = (_tiles(side, least * factor, swap_size, generator) for side in sides)
        if rows * columns == 1:
            return query, key, value
        options[SCRATCH][place] = (rows, columns, *sides)
        return _to_tiles(query, rows, columns, *sides), key, value

    def join(result: Tensor, options: Options) -> Tensor:
        cut_as = options[SCRATCH].pop(place, None)
        return result if cut_as is None else _from_tiles(result, *cut_as)

    builder.patch("attn1_patch", cut)
    builder.patch("attn1_output_patch", join)


def _tiles(side: int, least: int, swap_size: int, generator: torch.Generator) -> int:
    """Return into how many equal tiles of at least `least` cells a side is cut."""
    # Of several choices the last one is never drawn, as in ComfyUI.
    sizes = [size for size in range(min(least, side), side + 1) if side % size == 0][:swap_size]
    counts = [side // size for size in sizes]
    chosen = int(torch.randint(0, len(counts) - 1, (1,), generator=generator)) if len(counts) > 1 else 0
    return counts[chosen]


def _to_tiles(x: Tensor, rows: int, columns: int, height: int, width: int) -> Tensor:
    parts = x.reshape(x.shape[0], rows, height // rows, columns, width // columns, x.shape[-1])
    return parts.transpose(2, 3).reshape(x.shape[0] * rows * columns, -1, x.shape[-1])


def _from_tiles(x: Tensor, rows: int, columns: int, height: int, width: int) -> Tensor:
    parts = x.reshape(-1, rows, columns, height // rows, width // columns, x.shape[-1])
    return parts.transpose(2, 3).reshape(-1, height * width, x.shape[-1])


def merge_tokens(builder: OptionsBuilder, ratio: float) -> None:
    """Merge a share of a finest level's queries into those most alike, and copy what they give back.

    Bolya and Hoffman 2023, Token Merging for Fast Stable Diffusion (arXiv 2303.17604), section 3.
    """
    place = f"tome {builder.number}"
    builder.draw()

    def merge(query: Tensor, key: Tensor, value: Tensor, options: Options) -> tuple[Tensor, Tensor, Tensor]:
        height, width = options["original_shape"][-2:]
        merged = int(query.shape[1] * ratio)
        if query.shape[1] != height * width or merged <= 0 or 1 in (height, width):
            return query, key, value
        with stream_of(options) as generator:
            fewer, restore = _matched(query, (height, width), merged, generator)
        options[SCRATCH][place] = restore
        return fewer, key, value

    def unmerge(result: Tensor, options: Options) -> Tensor:
        restore = options[SCRATCH].pop(place, None)
        return result if restore is None else restore(result)

    builder.patch("attn1_patch", merge)
    builder.patch("attn1_output_patch", unmerge)


def _matched(
    x: Tensor, size: tuple[int, int], merged: int, generator: torch.Generator
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Merge tokens [N, h * w, D] by bipartite soft matching; return them, and how to undo it.

    One token of each 2 x 2 cells, drawn at random, is a target; of all others the `merged` ones that are most
    like a target are averaged into it.
    """
    sources, targets = _split(*size, generator, x.device)
    unit = x / x.norm(dim=-1, keepdim=True)
    likeness = unit[:, sources] @ unit[:, targets].transpose(-1, -2)
    merged = min(merged, len(sources))
    best, target_of = likeness.max(dim=-1)
    order = best.argsort(dim=-1, descending=True)[..., None]
    gone, kept = order[:, :merged], order[:, merged:]
    into = target_of[..., None].gather(1, gone)
    width = x.shape[-1]

    def taken(values: Tensor, places: Tensor) -> Tensor:
        return values.gather(1, places.expand(-1, -1, values.shape[-1]))

    base = x[:, targets].scatter_reduce(
        1, into.expand(-1, -1, width), taken(x[:, sources], gone), reduce="mean", include_self=True
    )

    def restore(result: Tensor) -> Tensor:
        kept_results, base_results = result[:, : kept.shape[1]], result[:, kept.shape[1] :]
        from_sources = result.new_zeros(result.shape[0], len(sources), result.shape[-1])
        from_sources.scatter_(1, kept.expand(-1, -1, result.shape[-1]), kept_results)
        from_sources.scatter_(1, gone.expand(-1, -1, result.shape[-1]), taken(base_results, into))
        whole = result.new_zeros(result.shape[0], len(sources) + len(targets), result.shape[-1])
        whole[:, sources], whole[:, targets] = from_sources, base_results
        return whole

    return torch.cat((taken(x[:, sources], kept), base), dim=1), restore


def _split(height: int, width: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the indices of sources and of targets among height * width tokens."""
    rows, columns = height // _PAIR, width // _PAIR
    drawn = torch.randint(_PAIR * _PAIR, (rows, columns, 1), generator=generator)[..., 0]
    down = torch.arange(rows)[:, None] * _PAIR + drawn // _PAIR
    across = torch.arange(columns)[None, :] * _PAIR + drawn % _PAIR
    is_target = torch.zeros(height * width, dtype=torch.bool)
    is_target[(down * width + across).reshape(-1)] = True
    return (~is_target).nonzero()[:, 0].to(device), is_target.nonzero()[:, 0].to(device)
