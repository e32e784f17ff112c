"""Encode previews of latents."""

from __future__ import annotations

import io

from PIL import Image
from torch import Tensor

PREVIEW_PX = 512
"""Longer side of a preview."""

_JPEG_QUALITY = 85


def encode_preview(pixels: Tensor) -> bytes:
    """Return pixels [h, w, 3] uint8 as a JPEG whose longer side is PREVIEW_PX."""
    image = Image.fromarray(pixels.numpy())
    scale = PREVIEW_PX / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=_JPEG_QUALITY)
    return buffer.getvalue()
