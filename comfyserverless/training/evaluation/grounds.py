"""Find a picture's background from its border: one plain colour, or one that runs evenly from top to bottom."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comfyserverless.training.scenery.world import COLORS, Floats

_NEAR = 40.0
"""Distance in RGB within which border pixels count as the background."""
_FARTHEST_NAME = 80.0
_GRADIENT_GAIN = 0.1
_CANDIDATES = 48
_PALETTE = np.array(list(COLORS.values()), np.float32)
_NAMES = tuple(COLORS)


@dataclass(frozen=True, slots=True)
class Ground:
    """name: of the colour at the top, "" when none is near; colors: [h, 1, 3] by row; noise: in levels."""

    name: str
    colors: Floats
    noise: float


def color_name(color: Floats) -> str:
    """Return the name of the nearest colour [3], "" when none is near."""
    away = np.linalg.norm(_PALETTE - color, axis=-1)
    return _NAMES[int(away.argmin())] if away.min() <= _FARTHEST_NAME else ""


def nearest_colors(pixels: Floats) -> NDArray[np.intp]:
    """Return for pixels [n, 3] the index of the nearest name in COLORS."""
    return ((pixels[:, None] - _PALETTE) ** 2).sum(-1).argmin(-1)


def find_ground(pixels: Floats) -> Ground:
    """Find the background of a picture [h, w, 3]: what most of its border agrees on."""
    height = len(pixels)
    down, border = _border(pixels)
    plain = _most_common(border)
    top, bottom = (_most_common(row.reshape(-1, 3)) for row in (pixels[:2], pixels[-2:]))
    line = np.stack([top, bottom])
    is_plain, is_line = _agrees(border, plain[None]), _agrees(border, _along(line, down))
    if is_line.mean() < is_plain.mean() + _GRADIENT_GAIN:
        color = np.median(border[is_plain], 0)
        line = np.stack([color, color])
    else:
        line = _fitted(down[is_line], border[is_line])
    colors = _along(line, (np.arange(height, dtype=np.float32) + 0.5) / height)
    left = border - _along(line, down)
    noise = 1.48 * float(np.median(np.abs(left)))
    return Ground(color_name(line[0]), colors[:, None], noise)


def _border(pixels: Floats) -> tuple[Floats, Floats]:
    """Return how far down (0..1) and which colour the pixels of the outer two rows and columns are."""
    height, width, _ = pixels.shape
    is_border = np.ones((height, width), bool)
    is_border[2:-2, 2:-2] = False
    down = np.broadcast_to(((np.arange(height, dtype=np.float32) + 0.5) / height)[:, None], (height, width))
    return down[is_border], pixels[is_border]


def _most_common(colors: Floats) -> Floats:
    """Return the middle of the largest crowd of colours [n, 3]."""
    candidates = colors[np.linspace(0, len(colors) - 1, _CANDIDATES).astype(int)]
    is_near = np.linalg.norm(colors[None] - candidates[:, None], axis=-1) < _NEAR
    crowd: Floats = np.median(colors[is_near[int(is_near.sum(1).argmax())]], 0)
    return crowd


def _agrees(border: Floats, model: Floats) -> NDArray[np.bool_]:
    return np.linalg.norm(border - model, axis=-1) < _NEAR


def _along(line: Floats, down: Floats) -> Floats:
    """Return the colours [n, 3] of a line from top to bottom [2, 3] at places 0..1 [n]."""
    return (line[0] * (1 - down[:, None]) + line[1] * down[:, None]).astype(np.float32)


def _fitted(down: Floats, colors: Floats) -> Floats:
    """Return the line [2, 3] from top to bottom through colours, by least squares."""
    ends = np.stack([1 - down, down], 1)
    line, *_ = np.linalg.lstsq(ends, colors, rcond=None)
    return line.astype(np.float32)
