"""Cut a batch into tiles that overlap, and blend what a network makes of them.

Where tiles overlap, each counts less the nearer its own edge is, so that no seam shows. One pass over a picture
has tiles of one size; the average of passes with tiles of several shapes hides what is left of their edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import TypeAlias

import torch
from torch import Tensor

Size: TypeAlias = tuple[int, int]
"""Height and width."""

Box: TypeAlias = tuple[int, int, int, int]
"""Top, left, height and width of a tile in what a network takes."""

Network: TypeAlias = Callable[[Tensor], Tensor]
"""Turn [B, C, h, w] into [B, C', h * scale, w * scale]."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """The tiles of one pass: their size and how far they overlap, in cells of what a network takes."""

    height: int
    width: int
    overlap: int

    def boxes(self, size: Size) -> list[Box]:
        """Return the tiles of a picture row by row; one if it fits into one. Pre: overlap below both sides."""
        rows, columns = (
            _starts(length, side, self.overlap)
            for length, side in zip(size, (self.height, self.width), strict=True)
        )
        return [
            (top, left, min(self.height, size[0] - top), min(self.width, size[1] - left))
            for top, left in product(rows, columns)
        ]


def _starts(length: int, side: int, overlap: int) -> Iterable[int]:
    return (0,) if length <= side else range(0, length - overlap, side - overlap)


def three_tilings(side: int, overlap: int, *, is_square_first: bool) -> tuple[Tiling, Tiling, Tiling]:
    """Return the passes of an autoencoder, in the order in which they are summed: it decides the last bits."""
    wide, high = Tiling(side // 2, side * 2, overlap), Tiling(side * 2, side // 2, overlap)
    square = Tiling(side, side, overlap)
    return (square, wide, high) if is_square_first else (high, wide, square)


def cut(batch: Tensor, box: Box) -> Tensor:
    """Return the part of [..., H, W] in a box; it shares memory with the batch."""
    top, left, height, width = box
    return batch[..., top : top + height, left : left + width]


def scaled(length: int, scale: Fraction) -> int:
    """Return a length or position in what a network gives."""
    return round(length * scale)


def blend(tiles: Iterable[Tensor], boxes: Sequence[Box], size: Size, overlap: int, scale: Fraction) -> Tensor:
    """Put the tiles of one picture together.

    tiles: [C, h * scale, w * scale] float32 for each of `boxes`, read one after the other; size: of the
    picture that the boxes are of. Returns [C, H * scale, W * scale]. Raises ValueError if tiles are missing.
    """
    total: Tensor | None = None
    shares = torch.empty(0)
    for tile, (top, left, _, _) in zip(tiles, boxes, strict=True):
        if len(boxes) == 1:
            return tile
        if total is None:
            total = tile.new_zeros(tile.shape[0], scaled(size[0], scale), scaled(size[1], scale))
            shares = tile.new_zeros(1, *total.shape[1:])
        place = (scaled(top, scale), scaled(left, scale), tile.shape[1], tile.shape[2])
        share = _shares(tile, scaled(overlap, scale))
        cut(total, place).add_(tile * share)
        cut(shares, place).add_(share)
    if total is None:
        raise ValueError("there are no tiles")
    return total.div_(shares)


def _shares(tile: Tensor, feather: int) -> Tensor:
    """Return how much each cell of a tile counts, [1, H, W]: less within `feather` cells of its edges."""
    rows, columns = (_ramp(length, feather).to(tile) for length in tile.shape[1:])
    return rows[None, :, None] * columns[None, None, :]


def _ramp(length: int, feather: int) -> Tensor:
    ramp = torch.ones(length)
    if feather < length:
        for at in range(feather):
            share = (at + 1) / feather
            ramp[at] *= share
            ramp[length - 1 - at] *= share
    return ramp


def run_in_tiles(x: Tensor, network: Network, tilings: Sequence[Tiling], scale: Fraction) -> Tensor:
    """Give each picture of a batch to a network in tiles, and return the average of all passes.

    x: [B, C, H, W]. Returns [B, C', H * scale, W * scale].
    """
    size = (x.shape[2], x.shape[3])
    total: Tensor | None = None
    for tiling in tilings:
        boxes = tiling.boxes(size)
        items = [
            blend((network(cut(item, box))[0] for box in boxes), boxes, size, tiling.overlap, scale)
            for item in torch.split(x, 1)
        ]
        total = torch.stack(items) if total is None else total + torch.stack(items)
    if total is None:
        raise ValueError("there are no tilings")
    return total if len(tilings) == 1 else total / len(tilings)
