"""Limit conditionings to parts of the latent: boxes that the model sees alone, and weights per cell.

An entry's options may hold `area` ([height, width, top, left] in cells, or "percentage" and shares of the
latent), `mask` ([B, H, W], of any size) with `mask_strength`, and `set_area_to_bounds`: the box around the mask
is the area.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from comfyserverless.core.errors import PromptError

_LEAST_BOUNDS = 8
"""Cells on each side of the box around a mask, at least."""

_CELL_PX = 8
"""Pixels on each side of a cell."""

_FADE = 8
"""Cells over which the weight of an area fades towards the borders that lie inside the latent."""


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a latent, in cells."""

    top: int
    left: int
    height: int
    width: int

    def of(self, x: Tensor) -> Tensor:
        """View the part in a tensor [..., h, w]."""
        return x[..., self.top : self.top + self.height, self.left : self.left + self.width]

    def holds(self, other: Box) -> bool:
        """Tell whether another box lies inside this one."""
        return (
            self.top <= other.top
            and self.left <= other.left
            and other.top + other.height <= self.top + self.height
            and other.left + other.width <= self.left + self.width
        )

    @property
    def cells(self) -> int:
        """Return how many cells it has."""
        return self.height * self.width


@dataclass(frozen=True, slots=True)
class Region:
    """Where an entry acts. box: None for everywhere; mask: [B, h, w] of the whole latent, or None."""

    box: Box | None = None
    mask: Tensor | None = None
    mask_strength: float = 1.0

    def crop(self, x: Tensor) -> Tensor:
        """View what the model sees of a latent."""
        return x if self.box is None else self.box.of(x)

    def weights(self, x: Tensor, strength: float) -> Tensor:
        """Return how much the entry counts in each cell: [B or 1, 1, h, w] of the part that it sees.

        Weights of an area without a mask fade over 8 cells towards borders that lie inside the latent x.
        """
        part = self.crop(x)
        if self.mask is not None:
            mask = self.crop(self.mask[: x.shape[0]]) * self.mask_strength
            return _repeated(mask, x.shape[0])[:, None] * strength
        weights = part.new_ones(1, 1, *part.shape[-2:]) * strength
        if self.box is not None:
            _fade(weights, self.box.top, self.box.height, x.shape[-2], axis=-2)
            _fade(weights, self.box.left, self.box.width, x.shape[-1], axis=-1)
        return weights

    @property
    def is_everywhere(self) -> bool:
        """Tell whether all cells count alike."""
        return self.box is None and self.mask is None


EVERYWHERE = Region()


def find_region(options: Mapping[str, Any], size: Sequence[int]) -> Region:
    """Return where a conditioning with these options acts in a latent of size (height, width) cells."""
    mask = options.get("mask")
    if mask is None:
        area = options.get("area")
        return EVERYWHERE if area is None else Region(_clamp(_in_cells(area, size), size))
    mask = _fit_mask(mask, size)
    strength = float(options.get("mask_strength", 1.0))
    if options.get("set_area_to_bounds"):
        return Region(_clamp(_bounds(mask), size), mask, strength)
    area = options.get("area")
    return Region(None if area is None else _clamp(_in_cells(area, size), size), mask, strength)


def check_inside(options: Mapping[str, Any], size: Sequence[int]) -> None:
    """Check that a conditioning's area has a part of a latent of size (height, width) cells.

    Raises PromptError for one that begins behind the right or lower border.
    """
    area = options.get("area")
    if area is None or (options.get("mask") is not None and options.get("set_area_to_bounds")):
        return
    box = _in_cells(area, size)
    if box.top >= size[0] or box.left >= size[1]:
        raise PromptError(
            f"an area begins at x {box.left * _CELL_PX}, y {box.top * _CELL_PX}, outside of the picture;"
            f" allowed: x below {size[1] * _CELL_PX} and y below {size[0] * _CELL_PX}"
        )


def left_over(
    taken: Sequence[tuple[Region, float]], size: Sequence[int], device: torch.device
) -> Region | None:
    """Return where regions, each with a strength, leave something of a weight of 1; None if nowhere."""
    count = max((region.mask.shape[0] for region, _ in taken if region.mask is not None), default=1)
    rest = torch.ones(count, 1, *size, device=device)
    for region, strength in taken:
        region.crop(rest).sub_(region.weights(rest, strength))
    rest.relu_()
    return Region(mask=rest[:, 0]) if float(rest.max()) > 0.0 else None


def _in_cells(area: Sequence[Any], size: Sequence[int]) -> Box:
    if area[0] != "percentage":
        height, width, top, left = area
        return Box(top, left, height, width)
    height, width, top, left = area[1:]
    return Box(
        round(top * size[0]),
        round(left * size[1]),
        max(1, round(height * size[0])),
        max(1, round(width * size[1])),
    )


def _clamp(box: Box, size: Sequence[int]) -> Box:
    """Cut a box off at the latent's border; at least one row and column are left."""
    top, left = min(box.top, size[0] - 1), min(box.left, size[1] - 1)
    return Box(top, left, min(box.height, size[0] - top), min(box.width, size[1] - left))


def _fit_mask(mask: Tensor, size: Sequence[int]) -> Tensor:
    masks = mask.reshape(-1, *mask.shape[-2:])
    if tuple(masks.shape[-2:]) == tuple(size):
        return masks
    return functional.interpolate(masks[:, None], size=tuple(size), mode="bilinear", align_corners=False)[:, 0]


def _bounds(mask: Tensor) -> Box:
    """Return the box around everything that any of the masks holds."""
    held = mask.abs().amax(dim=0) != 0
    rows, columns = held.any(dim=1).nonzero(), held.any(dim=0).nonzero()
    if not len(rows):
        return Box(0, 0, _LEAST_BOUNDS, _LEAST_BOUNDS)
    top, left = int(rows[0]), int(columns[0])
    height, width = int(rows[-1]) - top + 1, int(columns[-1]) - left + 1
    return Box(top, left, max(_LEAST_BOUNDS, height), max(_LEAST_BOUNDS, width))


def _fade(weights: Tensor, start: int, length: int, whole: int, axis: int) -> None:
    """Lower, in place, the weights next to borders that lie inside the latent."""
    count = min(_FADE, length // 4)
    for cell in range(count):
        share = 1.0 / count * (cell + 1)
        if start != 0:
            weights.narrow(axis, cell, 1).mul_(share)
        if start + length < whole:
            weights.narrow(axis, length - 1 - cell, 1).mul_(share)


def _repeated(mask: Tensor, count: int) -> Tensor:
    if mask.shape[0] in (1, count):
        return mask
    return mask.repeat(-(-count // mask.shape[0]), 1, 1)[:count]
