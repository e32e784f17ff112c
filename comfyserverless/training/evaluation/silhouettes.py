"""Name the shape of a silhouette: which drawn template covers it best, at the same area and centre of mass.

Area and centre are sums over all pixels, so a stray pixel moves them next to nothing; it would move a bounding
box far. Circle and hexagon, which overlap a lot, are told apart by the sixth harmonic of their outlines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from comfyserverless.training.scenery.world import SHAPES, Floats

_LEAST_OVERLAP = 0.70
"""Intersection over union below which a silhouette has no name."""
_MOST_DEVIATION = 0.055
"""Mean distance of outline and template, in radii, beyond which it has none either."""
_HOPELESS = 0.4
ROUND = ("circle", "hexagon")
"""Shapes that overlap a lot."""
_HEXAGONAL = 0.0295
"""Sixth harmonic: 0 of a circle, 0.059 of a hexagon."""
_LOW_HARMONICS = (2, 3, 4, 5)
_MOST_HARMONIC = 0.06
_SCALES = (0.95, 1.05)
_SHIFT = 0.04
_EXTENT = 1.3
_GRID = 520
_RIM = 0.04


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a template covers a silhouette. shape: "" if none does; overlap: 0..1; x, y, radius: pixels."""

    shape: str
    overlap: float
    x: float
    y: float
    radius: float


@dataclass(frozen=True, slots=True)
class _Moments:
    """Area, length of outline and centre of mass of a shape of radius 1."""

    area: float
    perimeter: float
    x: float
    y: float


@lru_cache(maxsize=16)
def _moments(shape: str) -> _Moments:
    axis = ((np.arange(_GRID, dtype=np.float32) + 0.5) / _GRID * 2 - 1) * _EXTENT
    x, y = np.meshgrid(axis, axis)
    distance = SHAPES[shape](x, y)
    inside = distance <= 0
    square = (2 * _EXTENT) ** 2
    perimeter = float((np.abs(distance) < _RIM / 2).mean()) * square / _RIM
    return _Moments(float(inside.mean()) * square, perimeter, float(x[inside].mean()), float(y[inside].mean()))


def cover(shape: str, size: tuple[int, int], x: float, y: float, radius: float) -> Floats:
    """Draw a shape's coverage [h, w] 0..1 around (x, y) in pixels; size is (height, width)."""
    right = (np.arange(size[1], dtype=np.float32) + np.float32(0.5 - x)) / np.float32(radius)
    down = (np.arange(size[0], dtype=np.float32) + np.float32(0.5 - y)) / np.float32(radius)
    distance = SHAPES[shape](right[None, :], down[:, None]) * np.float32(radius)
    return np.clip(0.5 - distance, 0, 1)


def best_fit(coverage: Floats) -> Fit:
    """Return the shape that fits a coverage map [h, w] 0..1 best; its name is "" if even that fits badly."""
    best = max((_fit(shape, coverage) for shape in SHAPES), key=lambda fit: fit.overlap)
    if best.shape in ROUND:
        best = _fit(ROUND[_harmonic(coverage, 6).real > _HEXAGONAL], coverage)
    return best if _is_convincing(best, coverage) else replace(best, shape="")


def _is_convincing(fit: Fit, coverage: Floats) -> bool:
    moments = _moments(fit.shape)
    deviation = (1 - fit.overlap) * moments.area / moments.perimeter
    if fit.overlap < _LEAST_OVERLAP or deviation > _MOST_DEVIATION:
        return False
    return fit.shape not in ROUND or all(
        abs(_harmonic(coverage, order)) < _MOST_HARMONIC for order in _LOW_HARMONICS
    )


def _harmonic(coverage: Floats, order: int) -> complex:
    """Return a Fourier coefficient of the outline's distance from the centre of mass, over its mean.

    For outlines near a circle it is the mean of exp(i order angle) over the area.
    """
    x, y = _centre(coverage)
    right = (np.arange(coverage.shape[1]) + 0.5 - x)[None, :]
    down = (np.arange(coverage.shape[0]) + 0.5 - y)[:, None]
    direction = (right + 1j * down) / np.maximum(np.hypot(right, down), 1e-6)
    return complex((coverage * direction**order).sum() / coverage.sum())


def _centre(coverage: Floats) -> tuple[float, float]:
    total = float(coverage.sum())
    height, width = coverage.shape
    return (
        float(coverage.sum(0) @ (np.arange(width) + 0.5)) / total,
        float(coverage.sum(1) @ (np.arange(height) + 0.5)) / total,
    )


def fit_ring(coverage: Floats) -> Fit:
    """Lay a ring over a coverage map [h, w] with a hole; its name is "" if it fits badly."""
    ring = _fit("ring", coverage)
    return ring if _is_convincing(ring, coverage) else replace(ring, shape="")


def _fit(shape: str, coverage: Floats) -> Fit:
    """Lay a shape over a coverage map, first by moments, then by small steps of scale and place."""
    moments = _moments(shape)
    middle_x, middle_y = _centre(coverage)
    radius = math.sqrt(float(coverage.sum()) / moments.area)
    best = _measure(shape, coverage, middle_x - moments.x * radius, middle_y - moments.y * radius, radius)
    if best.overlap < _HOPELESS:
        return best
    for scale in _SCALES:
        best = _better(best, _measure(shape, coverage, best.x, best.y, radius * scale))
    step = _SHIFT * radius
    for right, down in ((step, 0.0), (-step, 0.0), (0.0, step), (0.0, -step)):
        best = _better(best, _measure(shape, coverage, best.x + right, best.y + down, best.radius))
    return best


def _better(one: Fit, two: Fit) -> Fit:
    return two if two.overlap > one.overlap else one


def _measure(shape: str, coverage: Floats, x: float, y: float, radius: float) -> Fit:
    template = cover(shape, (coverage.shape[0], coverage.shape[1]), x, y, radius)
    both, either = np.minimum(template, coverage).sum(), np.maximum(template, coverage).sum()
    return Fit(shape, float(both / either), x, y, radius)
