"""Find edges in images: Canny 1986, A Computational Approach to Edge Detection, in its usual discrete form.

Gaussian of 5x5 pixels and standard deviation 1, Sobel's derivatives, suppression of what is not the largest
across the edge in one of eight directions, and hysteresis between two thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.ndimage
import torch
from torch import Tensor
from torch.nn import functional

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.host import HostFn

_LUMA = (0.299, 0.587, 0.114)
_GAUSSIAN_RADIUS_PX = 2
_LEAST_SIDE_PX = _GAUSSIAN_RADIUS_PX + 1
#: Keeps the root of the squared gradient away from 0.
_EPSILON = 1e-6
#: (down, right) of the neighbours at 0, 45 ... 315 degrees, y pointing down.
_DIRECTIONS = ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1))
_STEP_DEGREES = 360.0 / len(_DIRECTIONS)


class ImageCanny(HostFn):
    """Draw the edges of images, white on black."""

    name = "image.canny"
    takes = "images low_threshold high_threshold"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return images [B, H, W, 3] of 0 and 1.

        Raises PromptError if the low threshold is above the high one, or the image has sides below 3 pixels.
        """
        images, low, high = inputs["images"], inputs["low_threshold"], inputs["high_threshold"]
        if low > high:
            raise PromptError(f"low_threshold {low} is above high_threshold {high}")
        if min(images.shape[1:3]) < _LEAST_SIDE_PX:
            raise PromptError(
                f"edges need images of at least {_LEAST_SIDE_PX}x{_LEAST_SIDE_PX} pixels,"
                f" not {images.shape[2]}x{images.shape[1]}"
            )
        edges = [_find_edges(image, low, high) for image in images.float().split(1)]
        return {"images": torch.stack(edges)[..., None].expand(-1, -1, -1, 3)}


def _find_edges(image: Tensor, low: float, high: float) -> Tensor:
    """Return the edges [H, W] of an image [1, H, W, C]; a batch goes one by one, as the steps need memory."""
    return _hysteresis(_thin(*_gradient(_blur(_luma(image))))[0, 0], low, high)


def _luma(images: Tensor) -> Tensor:
    """Return the brightness [B, 1, H, W] of images [B, H, W, C]; of one channel, itself."""
    if images.shape[-1] == 1:
        return images.movedim(-1, 1)
    red, green, blue = images[..., :3].unbind(-1)
    return (_LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue)[:, None]


def _blur(x: Tensor) -> Tensor:
    """Blur [B, 1, H, W] along W, then along H, mirrored at the borders."""
    places = torch.arange(-_GAUSSIAN_RADIUS_PX, _GAUSSIAN_RADIUS_PX + 1, dtype=torch.float32)
    weights = torch.exp(-(places**2) / 2.0)
    weights = (weights / weights.sum()).reshape(1, 1, 1, -1)
    pad = _GAUSSIAN_RADIUS_PX
    x = functional.conv2d(functional.pad(x, (pad, pad, 0, 0), mode="reflect"), weights)
    return functional.conv2d(functional.pad(x, (0, 0, pad, pad), mode="reflect"), weights.mT)


def _gradient(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the length [B, 1, H, W] of the gradient of x, and its direction as an index of _DIRECTIONS."""
    sobel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]])
    kernels = torch.stack((sobel, sobel.T))[:, None]
    both = functional.conv2d(functional.pad(x, (1, 1, 1, 1), mode="replicate"), kernels)
    right, down = both[:, :1], both[:, 1:]
    magnitude = torch.sqrt(right * right + down * down + _EPSILON)
    degrees = 180.0 * torch.atan2(down, right) / math.pi
    direction = (degrees / _STEP_DEGREES).round().long() % len(_DIRECTIONS)
    return magnitude, direction


def _thin(magnitude: Tensor, direction: Tensor) -> Tensor:
    """Set to 0 what is not larger than both neighbours along the gradient; beyond the borders lie zeros."""
    height, width = magnitude.shape[-2:]
    padded = functional.pad(magnitude, (1, 1, 1, 1))
    neighbours = torch.cat(
        [padded[:, :, 1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width] for dy, dx in _DIRECTIONS], dim=1
    )
    ahead = neighbours.gather(1, direction)
    behind = neighbours.gather(1, (direction + len(_DIRECTIONS) // 2) % len(_DIRECTIONS))
    is_largest = torch.minimum(magnitude - ahead, magnitude - behind) > 0.0
    return magnitude * is_largest


def _hysteresis(magnitude: Tensor, low: float, high: float) -> Tensor:
    """Keep what is above `high`, and what is above `low` and connected to it, over corners too.

    magnitude: [H, W]. Returns [H, W] float32 of 0 and 1.
    """
    values = magnitude.numpy()
    parts, _ = scipy.ndimage.label(values > low, structure=np.ones((3, 3)))
    strong = np.unique(parts[values > high])
    return torch.from_numpy(np.isin(parts, strong[strong > 0]).astype(np.float32))
