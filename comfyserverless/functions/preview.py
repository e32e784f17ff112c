"""Show latents while they are sampled."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import partial
from typing import Any

from PIL import Image
from torch import Tensor

from comfyserverless.core.values import ModelRef
from comfyserverless.models.previews.previewer import Previewer
from comfyserverless.sdk.modelfn import Later

_JPEG_QUALITY = 85


def show_later(previewer: Previewer, model: ModelRef, denoised: Tensor, wish: Mapping[str, Any]) -> Later:
    """Return what makes the preview that a `preview` port wishes for.

    denoised: [B, C, h, w] in the units of the model; of it the first item is kept until then.
    """
    return Later(partial(_show, previewer, model, denoised[:1].clone(), wish))


def _show(previewer: Previewer, model: ModelRef, denoised: Tensor, wish: Mapping[str, Any]) -> bytes:
    return encode_preview(previewer.picture(model, denoised, wish["decoders"]), wish["size_px"])


def encode_preview(pixels: Tensor, size_px: int) -> bytes:
    """Return pixels [h, w, 3] uint8 as a JPEG whose longer side is size_px."""
    image = Image.fromarray(pixels.numpy())
    scale = size_px / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=_JPEG_QUALITY)
    return buffer.getvalue()
