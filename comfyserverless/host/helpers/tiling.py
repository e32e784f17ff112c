"""Give a batch to a function in tiles that overlap, of any number of dimensions, and blend what comes back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

Scale = float | Callable[[float], float]


def get_tiled_scale_steps(width: int, height: int, tile_x: int, tile_y: int, overlap: int) -> int:
    """Return into how many tiles a picture is cut."""
    rows, columns = (
        1 if length <= tile else math.ceil((length - overlap) / (tile - overlap))
        for length, tile in ((height, tile_y), (width, tile_x))
    )
    return rows * columns


_LATER = ("out_channels", "output_device", "downscale", "index_formulas", "pbar")
"""What may follow by position after the sixth argument; of `tiled_scale` only what pictures need."""

_LATER_2D = ("out_channels", "output_device", "pbar")


def tiled_scale(
    samples: Tensor,
    function: Callable[[Tensor], Tensor],
    tile_x: int = 64,
    tile_y: int = 64,
    overlap: int = 8,
    upscale_amount: Scale = 4,
    *later: Any,
    **named: Any,
) -> Tensor:
    """Scale pictures [B, C, H, W] tile by tile; later: out_channels, output_device, pbar, also by name."""
    named |= dict(zip(_LATER_2D, later, strict=False))
    return tiled_scale_multidim(samples, function, (tile_y, tile_x), overlap, upscale_amount, **named)


@torch.inference_mode()
def tiled_scale_multidim(
    samples: Tensor,
    function: Callable[[Tensor], Tensor],
    tile: Sequence[int] = (64, 64),
    overlap: int | Sequence[int] = 8,
    upscale_amount: Scale | Sequence[Scale] = 4,
    *later: Any,
    **named: Any,
) -> Tensor:
    """Scale [B, C, *sides] to [B, out_channels, *sides of the result] on `output_device`.

    tile, overlap: cells along each side, of what `function` takes; upscale_amount: factors, or functions of a
    length, with `downscale` what to divide by; index_formulas: the same for positions, if they differ.
    pbar: gets update(1) after each tile. The last five also by position, see `_LATER`.
    """
    named |= dict(zip(_LATER, later, strict=False))
    sides = samples.shape[2:]
    overlaps = [overlap] * len(sides) if isinstance(overlap, int) else list(overlap)
    is_divided = bool(named.get("downscale", False))
    lengths = _scalings(upscale_amount, len(sides), is_divided)
    formulas = named.get("index_formulas")
    work = _Work(
        function=function,
        tile=tile,
        starts=[
            (0,) if side <= length else range(0, side - each, length - each)
            for side, length, each in zip(sides, tile, overlaps, strict=True)
        ],
        places=lengths if formulas is None else _scalings(formulas, len(sides), is_divided),
        feathers=[scale(each) for scale, each in zip(lengths, overlaps, strict=True)],
        shape=[named.get("out_channels", 3), *(scale(n) for scale, n in zip(lengths, sides, strict=True))],
        device=named.get("output_device", "cpu"),
        bar=named.get("pbar"),
    )
    return torch.cat([work.scale(samples[at : at + 1]) for at in range(samples.shape[0])])


@dataclass(frozen=True, slots=True)
class _Work:
    """How each item of a batch is cut, and put together."""

    function: Callable[[Tensor], Tensor]
    tile: Sequence[int]
    starts: Sequence[Iterable[int]]
    places: Sequence[Callable[[float], int]]
    feathers: Sequence[int]
    shape: Sequence[int]
    device: Any
    bar: Any

    def scale(self, item: Tensor) -> Tensor:
        """Return the result for one item [1, C, *sides]."""
        total = torch.zeros(1, *self.shape, device=self.device)
        shares = torch.zeros(1, 1, *self.shape[1:], device=self.device)
        corners = list(product(*self.starts))
        for corner in corners:
            made = self.function(_cut(item, corner, self.tile)).to(total)
            share = _share(made, self.feathers if len(corners) > 1 else (0,) * len(self.feathers))
            spot: Any = (
                ...,
                *(
                    slice(p(at), p(at) + n)
                    for p, at, n in zip(self.places, corner, made.shape[2:], strict=True)
                ),
            )
            fits: Any = (..., *map(slice, total[spot].shape[2:]))  # rounding may leave less than was made
            total[spot] += (made * share)[fits]
            shares[spot] += share[fits]
            if self.bar is not None:
                self.bar.update(1)
        return total / shares


def _scalings(given: Any, count: int, is_divided: bool) -> list[Callable[[float], int]]:
    scales = list(given) if isinstance(given, Sequence) else [given] * count
    return [_scaling(scale, is_divided) for scale in scales]


def _scaling(scale: Scale, is_divided: bool) -> Callable[[float], int]:
    def scaled(length: float) -> int:
        if callable(scale):
            return round(scale(length))
        return round(length / scale) if is_divided else round(length * scale)

    return scaled


def _cut(item: Tensor, corner: Sequence[int], tile: Sequence[int]) -> Tensor:
    box: Any = (..., *(slice(at, at + length) for at, length in zip(corner, tile, strict=True)))
    return item[box]


def _share(made: Tensor, feathers: Sequence[int]) -> Tensor:
    """Return how much each cell of a tile counts: less within `feathers` cells of its edges."""
    share = torch.ones(1, 1, *made.shape[2:], device=made.device)
    for axis, feather in enumerate(feathers, 2):
        length = made.shape[axis]
        if feather >= length:
            continue
        ramp = torch.ones(length, device=made.device)
        for at in range(feather):
            ramp[at] *= (at + 1) / feather
            ramp[length - 1 - at] *= (at + 1) / feather
        share = share * ramp.reshape([-1 if each == axis else 1 for each in range(made.ndim)])
    return share
