"""Describe and draw scenes: shapes in plain colours on a plain background, from signed distances.

Scenes are laid out in units in which the shorter side of the canvas is 128 units, whatever its size in
pixels; x points right, y points down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Picture = NDArray[np.uint8]
"""[height, width, 3], red green blue."""

SHORT_SIDE = 128.0
COLORS: Mapping[str, tuple[int, int, int]] = {
    "red": (220, 38, 38),
    "orange": (246, 140, 28),
    "yellow": (250, 218, 44),
    "green": (40, 162, 70),
    "cyan": (64, 206, 222),
    "blue": (38, 80, 212),
    "purple": (132, 56, 182),
    "pink": (250, 142, 190),
    "white": (246, 246, 246),
    "black": (22, 22, 26),
    "gray": (132, 134, 138),
}
SIZES: Mapping[str, tuple[float, float]] = {"small": (20, 24), "medium": (31, 37), "large": (45, 53)}
"""Radius of an object, in units: least and most."""
PLACES: Mapping[str, tuple[int, int]] = {
    "left": (-1, 0),
    "right": (1, 0),
    "top": (0, -1),
    "bottom": (0, 1),
    "top left": (-1, -1),
    "top right": (1, -1),
    "bottom left": (-1, 1),
    "bottom right": (1, 1),
}
Kind = Literal["empty", "single", "count", "pair"]


@dataclass(frozen=True, slots=True)
class Item:
    """One object: its shape and colour, its middle and radius in units."""

    shape: str
    color: str
    x: float
    y: float
    radius: float
    is_striped: bool = False


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture as data; size_px is (width, height); place and size are words, or empty: nothing is said."""

    kind: Kind
    background: str
    items: tuple[Item, ...]
    size_px: tuple[int, int]
    place: str = ""
    size: str = ""
    is_gradient: bool = False
    is_vertical: bool = False

    @property
    def unit_px(self) -> float:
        """Pixels per unit."""
        return min(self.size_px) / SHORT_SIDE


def _circle(x: Floats, y: Floats) -> Floats:
    return np.hypot(x, y) - 0.95


def _square(x: Floats, y: Floats) -> Floats:
    return np.maximum(np.abs(x), np.abs(y)) - 0.82


def _triangle(x: Floats, y: Floats) -> Floats:
    return np.maximum(y - 0.72, 0.8666 * np.abs(x) - 0.499 * (y + 0.95))


def _ring(x: Floats, y: Floats) -> Floats:
    return np.abs(np.hypot(x, y) - 0.7) - 0.24


def _cross(x: Floats, y: Floats) -> Floats:
    ax, ay = np.abs(x), np.abs(y)
    return np.minimum(np.maximum(ax - 0.92, ay - 0.3), np.maximum(ax - 0.3, ay - 0.92))


def _hexagon(x: Floats, y: Floats) -> Floats:
    ax, ay = np.abs(x), np.abs(y)
    return np.maximum(ax * 0.866 + ay * 0.5, ay) - 0.84


def _diamond(x: Floats, y: Floats) -> Floats:
    return (np.abs(x) / 0.72 + np.abs(y) / 1.02 - 1) * 0.58


def _moon(x: Floats, y: Floats) -> Floats:
    return np.maximum(np.hypot(x, y) - 0.95, 0.78 - np.hypot(x - 0.48, y + 0.08))


def _star(x: Floats, y: Floats) -> Floats:
    fifth = 2 * math.pi / 5
    angle = np.abs((np.arctan2(x, -y) + fifth / 2) % fifth - fifth / 2)
    inner_x, inner_y = 0.44 * math.cos(fifth / 2), 0.44 * math.sin(fifth / 2)
    normal_x, normal_y = inner_y, 1.02 - inner_x
    r = np.hypot(x, y)
    along = (r * np.cos(angle) - 1.02) * normal_x + r * np.sin(angle) * normal_y
    return along / math.hypot(normal_x, normal_y)


def _heart(x: Floats, y: Floats) -> Floats:
    u, v = np.abs(x) * 0.62, 0.54 - y * 0.62
    lobe = np.hypot(u - 0.25, v - 0.75) - math.sqrt(2) / 4
    s = np.maximum(u + v, 0) / 2
    body = np.sqrt(np.minimum(u * u + (v - 1) ** 2, (u - s) ** 2 + (v - s) ** 2)) * np.sign(u - v)
    return np.where(u + v > 1, lobe, body) / 0.62


SHAPES: Mapping[str, Callable[[Floats, Floats], Floats]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "ring": _ring,
    "cross": _cross,
    "heart": _heart,
    "hexagon": _hexagon,
    "diamond": _diamond,
    "moon": _moon,
}
"""Signed distance (negative inside) of a shape of radius 1 around the origin."""

Coat = Callable[[Floats], Floats]
"""Turns the signed distance of an item, in units, into the distance that is drawn."""


def is_held_out(shape: str, color: str, background: str) -> bool:
    """Tell whether training never shows this combination: one in eleven, so that others are judged on it."""
    shapes, colors = list(SHAPES), list(COLORS)
    return (shapes.index(shape) + 3 * colors.index(color) + 5 * colors.index(background)) % 11 == 4


def draw(scene: Scene, rng: np.random.Generator, coat: Coat | None = None) -> Picture:
    """Draw a scene, antialiased; colours are a little off their names'. coat: another way to fill the items."""
    width, height = scene.size_px
    unit = scene.unit_px
    x = ((np.arange(width, dtype=np.float32) + 0.5) / unit)[None, :]
    y = ((np.arange(height, dtype=np.float32) + 0.5) / unit)[:, None]
    image = np.empty((height, width, 3), np.float32)
    image[:] = _ground(scene, rng, y * unit / height)
    for item in scene.items:
        reach = item.radius * 1.15 + 3
        rows = slice(*_span(item.y, reach, unit, height))
        columns = slice(*_span(item.x, reach, unit, width))
        u, v = (x[:, columns] - item.x), (y[rows] - item.y)
        distance = SHAPES[item.shape](u / item.radius, v / item.radius) * item.radius
        if coat is not None:
            distance = coat(distance)
        cover = np.clip(0.5 - distance * unit, 0, 1)[..., None]
        image[rows, columns] = image[rows, columns] * (1 - cover) + _fill(item, v, rng) * cover
    return np.clip(image + 0.5, 0, 255).astype(np.uint8)


def _span(middle: float, reach: float, unit: float, end: int) -> tuple[int, int]:
    return max(0, int((middle - reach) * unit)), min(end, int((middle + reach) * unit) + 2)


def _tint(color: str, rng: np.random.Generator) -> Floats:
    return np.clip(np.array(COLORS[color]) + rng.normal(0, 3, 3), 0, 255).astype(np.float32)


def _ground(scene: Scene, rng: np.random.Generator, down: Floats) -> Floats:
    base = _tint(scene.background, rng)
    if not scene.is_gradient:
        return base
    end = base * 0.45 if base.mean() > 60 else base + 110
    down = down[..., None]
    return (base * (1 - down) + end * down).astype(np.float32)


def _fill(item: Item, v: Floats, rng: np.random.Generator) -> Floats:
    fill = _tint(item.color, rng)[None, None]
    if not item.is_striped:
        return fill
    stripe = np.full(3, 250 if COLORS[item.color][1] < 225 else 150, np.float32)
    wave = np.clip(0.5 + np.sin(v * (2 * math.pi / 18)) * 3.0, 0, 1)[..., None]
    return (fill * wave + stripe * (1 - wave)).astype(np.float32)
