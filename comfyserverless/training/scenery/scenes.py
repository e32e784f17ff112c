"""Make random scenes: what is in the picture, where, how large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from comfyserverless.training.scenery.world import (
    COLORS,
    PLACES,
    SHAPES,
    SHORT_SIDE,
    SIZES,
    Item,
    Scene,
    is_held_out,
)

_KINDS = ("empty", "single", "count", "pair")
_KIND_SHARES = (0.04, 0.56, 0.12, 0.28)
_SIZE_SHARES = (0.31, 0.37, 0.32)
_PLACE_SHARES = (0.17, 0.17, 0.17, 0.17, 0.08, 0.08, 0.08, 0.08)
_MOST_RADIUS = 56.0


@dataclass(frozen=True, slots=True)
class _Canvas:
    """Where a scene is laid out: its size in pixels, and a source of chance."""

    size_px: tuple[int, int]
    rng: np.random.Generator

    @property
    def middle(self) -> tuple[float, float]:
        """The middle, in units."""
        unit = min(self.size_px) / SHORT_SIDE
        return self.size_px[0] / unit / 2, self.size_px[1] / unit / 2

    def near(self, value: float, spread: float) -> float:
        return value + self.rng.uniform(-spread, spread)

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def radius(self, least: float, most: float) -> float:
        """Return a radius in units; small canvases get larger objects, which would vanish in their cells."""
        growth = max(1.0, SHORT_SIDE / min(self.size_px)) ** 0.3
        return float(min(_MOST_RADIUS, self.rng.uniform(least, most) * growth))


def random_scene(rng: np.random.Generator, size_px: tuple[int, int] = (128, 128)) -> Scene:
    """Return a scene for a canvas of size_px (width, height); combinations that are held out never occur."""
    canvas = _Canvas(size_px, rng)
    background = str(rng.choice(list(COLORS)))
    is_gradient = canvas.chance(0.06)
    kind = str(rng.choice(_KINDS, p=_KIND_SHARES))
    if kind == "empty":
        return Scene("empty", background, (), size_px, is_gradient=is_gradient)
    if kind == "single":
        return _single(canvas, background, is_gradient)
    if kind == "count":
        return _count(canvas, background, is_gradient)
    return _pair(canvas, background, is_gradient)


def _pick(canvas: _Canvas, background: str) -> tuple[str, str]:
    """Return a shape and a colour for a background."""
    while True:
        shape = str(canvas.rng.choice(list(SHAPES)))
        color = str(canvas.rng.choice(list(COLORS)))
        if color != background and not is_held_out(shape, color, background):
            return shape, color


def _single(canvas: _Canvas, background: str, is_gradient: bool) -> Scene:
    rng = canvas.rng
    size = str(rng.choice(list(SIZES), p=_SIZE_SHARES))
    place = str(rng.choice(list(PLACES), p=_PLACE_SHARES))
    if size == "large" or canvas.chance(0.55):
        place = ""
    radius = canvas.radius(*SIZES[size])
    middle_x, middle_y = canvas.middle
    right, down = PLACES.get(place, (0, 0))
    item = Item(
        *_pick(canvas, background),
        x=canvas.near(middle_x + right * (middle_x - radius - 5) * rng.uniform(0.8, 1), 3),
        y=canvas.near(middle_y + down * (middle_y - radius - 5) * rng.uniform(0.8, 1), 3),
        radius=radius,
        is_striped=canvas.chance(0.06),
    )
    return Scene("single", background, (item,), canvas.size_px, place, size, is_gradient)


def _count(canvas: _Canvas, background: str, is_gradient: bool) -> Scene:
    count = 2 if canvas.chance(0.5) else 3
    shape, color = _pick(canvas, background)
    radius = canvas.rng.uniform(24, 28) if count == 2 else canvas.rng.uniform(18, 19.5)
    gap = 60 if count == 2 else 41
    middle_x, middle_y = canvas.middle
    row = canvas.near(middle_y, 4)
    is_striped = canvas.chance(0.04)
    items = tuple(
        Item(
            shape,
            color,
            x=canvas.near(middle_x + (at - (count - 1) / 2) * gap, 1),
            y=canvas.near(row, 2),
            radius=radius,
            is_striped=is_striped,
        )
        for at in range(count)
    )
    return Scene("count", background, items, canvas.size_px, is_gradient=is_gradient)


def _pair(canvas: _Canvas, background: str, is_gradient: bool) -> Scene:
    is_vertical = canvas.chance(0.35)
    middle_x, middle_y = canvas.middle
    gap = canvas.near(31, 1)
    items = []
    for side in (-1, 1):
        shape, color = _pick(canvas, background)
        along, across = side * gap, canvas.near(0, 3)
        x, y = (across, along) if is_vertical else (along, across)
        items.append(Item(shape, color, middle_x + x, middle_y + y, canvas.rng.uniform(24, 28)))
    return Scene(
        "pair", background, tuple(items), canvas.size_px, is_gradient=is_gradient, is_vertical=is_vertical
    )
