"""Encode images for clients that take them from the websocket."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from PIL import Image

from comfyserverless.functions.host import HostFn
from comfyserverless.functions.resampling import to_8bit


class ImageEncode(HostFn):
    """Encode one image of a batch as a PNG file."""

    name = "image.encode"
    takes = "images index"
    gives = "preview"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the bytes of the file."""
        index = inputs["index"]
        (pixels,) = to_8bit(inputs["images"][index : index + 1])
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, format="PNG")
        return {"preview": buffer.getvalue()}
