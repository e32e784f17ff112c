"""Draw scenes as a model would: wobbly outlines, noise, blur."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image, ImageFilter

from comfyserverless.training.scenery.world import Floats, Picture, Scene, draw

_WAVES = 6


@dataclass(frozen=True, slots=True)
class Flaws:
    """wobble: spread of the outline, in mean radii of the objects; noise: in levels; blur_px: a radius."""

    wobble: float = 0.0
    noise: float = 0.0
    blur_px: float = 0.0


def draw_with(flaws: Flaws, scene: Scene, rng: np.random.Generator) -> Picture:
    """Draw a scene without its stripes and with flaws."""
    items = tuple(replace(item, is_striped=False) for item in scene.items)
    radius = float(np.mean([item.radius for item in items])) if items else 1.0

    def coat(distance: Floats) -> Floats:
        return distance + flaws.wobble * radius * _field(distance.shape, rng, radius * scene.unit_px)

    pixels = draw(replace(scene, items=items), rng, coat if flaws.wobble else None).astype(np.float32)
    pixels += rng.normal(0, flaws.noise, pixels.shape).astype(np.float32)
    picture = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    return np.asarray(picture.filter(ImageFilter.GaussianBlur(flaws.blur_px)) if flaws.blur_px else picture)


def _field(shape: tuple[int, ...], rng: np.random.Generator, wavelength_px: float) -> Floats:
    """Return a smooth random field [h, w] of mean 0 and spread 1: a few plane waves."""
    y, x = np.mgrid[: shape[0], : shape[1]].astype(np.float32)
    field = np.zeros(shape, np.float32)
    for _ in range(_WAVES):
        along_x, along_y = rng.normal(0, 2 * math.pi / wavelength_px, 2)
        field += np.cos(along_x * x + along_y * y + rng.uniform(0, 2 * math.pi))
    return field * np.float32(math.sqrt(2 / _WAVES))
