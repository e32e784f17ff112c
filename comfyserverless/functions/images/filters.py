"""Blur, sharpen, quantise and roughen images."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.host import HostFn
from comfyserverless.functions.resampling import to_8bit

_RGB = 3
_SHARPENING = 10.0


class ImageBlur(HostFn):
    """Blur images."""

    name = "image.blur"
    takes = "images radius sigma"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return images weighed with a Gaussian over 2 radius + 1 pixels, mirrored at the borders.

        sigma: in units of the radius. Raises PromptError for a radius that reaches over the whole image.
        """
        radius = inputs["radius"]
        return {"images": _convolve(inputs["images"], gaussian(radius, inputs["sigma"]), radius)}


class ImageSharpen(HostFn):
    """Sharpen images."""

    name = "image.sharpen"
    takes = "images radius sigma alpha"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return images with `alpha` times ten of their difference to a blur added, cut off to 0..1."""
        radius = inputs["radius"]
        kernel = gaussian(radius, inputs["sigma"]) * -(inputs["alpha"] * _SHARPENING)
        kernel[radius, radius] = kernel[radius, radius] - kernel.sum() + 1.0
        return {"images": _convolve(inputs["images"], kernel, radius).clamp(0.0, 1.0)}


class ImageNoise(HostFn):
    """Add noise to images."""

    name = "image.noise"
    takes = "images seed strength"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return images plus `strength` times Gaussian noise of a seed, cut off to 0..1."""
        images = inputs["images"]
        generator = torch.Generator("cpu").manual_seed(inputs["seed"])
        noise = torch.randn(images.shape, generator=generator)
        return {"images": (images + inputs["strength"] * noise).clamp(0.0, 1.0)}


class ImageQuantize(HostFn):
    """Reduce images to few colours."""

    name = "image.quantize"
    takes = "images colors dither"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return images [B, H, W, 3] in `colors` colours each, which are chosen by median cut."""
        rgb = inputs["images"][..., :_RGB]
        reduced = [
            _quantize(Image.fromarray(item), inputs["colors"], inputs["dither"]) for item in to_8bit(rgb)
        ]
        return {"images": torch.from_numpy(np.stack(reduced).astype(np.float32) / 255.0)}


def _opened(x: Tensor, size: int) -> Tensor:
    return _dilated(_eroded(x, size), size)


def _closed(x: Tensor, size: int) -> Tensor:
    return _eroded(_dilated(x, size), size)


def _dilated(x: Tensor, size: int) -> Tensor:
    """Take the largest value of a square around each pixel; what lies beyond the border plays no part."""
    before = size // 2
    for axis in (-1, -2):
        pads = (before, size - before - 1, 0, 0) if axis == -1 else (0, 0, before, size - before - 1)
        kernel = (1, size) if axis == -1 else (size, 1)
        x = functional.max_pool2d(functional.pad(x, pads, value=-math.inf), kernel, stride=1)
    return x


def _eroded(x: Tensor, size: int) -> Tensor:
    return -_dilated(-x, size)


MORPHOLOGY: Mapping[str, Callable[[Tensor, int], Tensor]] = MappingProxyType(
    {
        "erode": _eroded,
        "dilate": _dilated,
        "open": _opened,
        "close": _closed,
        "gradient": lambda x, size: _dilated(x, size) - _eroded(x, size),
        "bottom_hat": lambda x, size: _closed(x, size) - x,
        "top_hat": lambda x, size: x - _opened(x, size),
    }
)
"""Operations of mathematical morphology with a flat square, by ComfyUI's names."""


class ImageMorphology(HostFn):
    """Apply mathematical morphology to images."""

    name = "image.morphology"
    takes = "images operation size"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return images after an operation with a square of size x size pixels."""
        x = inputs["images"].movedim(-1, 1)
        return {"images": MORPHOLOGY[inputs["operation"]](x, inputs["size"]).movedim(1, -1)}


def gaussian(radius: int, sigma: float) -> Tensor:
    """Return weights [2 radius + 1, 2 radius + 1] that sum to 1."""
    places = torch.linspace(-1, 1, 2 * radius + 1)
    across, down = torch.meshgrid(places, places, indexing="ij")
    distances = torch.sqrt(across * across + down * down)
    weights = torch.exp(-(distances * distances) / (2.0 * sigma * sigma))
    return weights / weights.sum()


def _convolve(images: Tensor, kernel: Tensor, radius: int) -> Tensor:
    height, width, channels = images.shape[1:]
    if radius >= min(height, width):
        raise PromptError(f"a radius of {radius} pixels reaches over the whole image of {width}x{height}")
    padded = functional.pad(images.movedim(-1, 1), (radius,) * 4, mode="reflect")
    weights = kernel.repeat(channels, 1, 1)[:, None]
    return functional.conv2d(padded, weights, groups=channels).movedim(1, -1)


def _quantize(image: Image.Image, colors: int, dither: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    palette = image.quantize(colors=colors)
    mode = Image.Dither.FLOYDSTEINBERG if dither == "floyd-steinberg" else Image.Dither.NONE
    if dither.startswith("bayer-"):
        image = _disturb(image, int(dither.removeprefix("bayer-")), len(palette.getpalette() or ()) // _RGB)
    return np.asarray(image.quantize(colors=colors, palette=palette, dither=mode).convert("RGB"))


def _disturb(image: Image.Image, order: int, colors: int) -> Image.Image:
    """Add an ordered pattern, as wide as two steps between the colours (Bayer 1973)."""
    pattern = _bayer(order) * (2 * 256 / colors) + 0.5
    pixels = np.asarray(image).astype(np.float32)
    repeats = [-(-length // order) for length in pixels.shape[:2]]
    tiled = np.tile(pattern.astype(np.float32), repeats)[: pixels.shape[0], : pixels.shape[1], None]
    return Image.fromarray((pixels + tiled).clip(0, 255).astype(np.uint8))


def _bayer(order: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the threshold matrix of a side that is a power of two, around zero, above -0.5 and below 0.5."""
    matrix = np.zeros((1, 1))
    while matrix.shape[0] < order:
        wide = 4 * matrix.shape[0] ** 2
        whole = matrix * wide
        matrix = np.block([[whole - 1.5, whole + 0.5], [whole + 1.5, whole - 0.5]]) / wide
    return matrix
