"""Write images as one animated file, and with 16 bits per value."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.host import HostFn
from comfyserverless.functions.resampling import to_8bit

_EXIF_MODEL = 0x0110
_EXIF_MAKE = 0x010F
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_COLOR_TYPES: Mapping[int, int] = {1: 0, 3: 2, 4: 6}


class ImageSaveWebp(HostFn):
    """Write a batch as one animated WEBP file."""

    name = "image.save_webp"
    takes = "images directory stem metadata frames_per_s is_lossless quality effort"
    gives = "files"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Write `{stem}_0.part` and return its path in a list.

        metadata: in EXIF, the prompt as the camera's model, the rest from its make downwards. effort: 0..6.
        """
        exif = Image.Exif()
        tag = _EXIF_MAKE
        for key, text in (inputs["metadata"] or {}).items():
            if key == "prompt":
                exif[_EXIF_MODEL] = f"{key}:{text}"
            else:
                exif[tag] = f"{key}:{text}"
                tag -= 1
        first, *others = _frames(inputs["images"])
        path = _part(inputs)
        first.save(
            path,
            format="WEBP",
            save_all=True,
            append_images=others,
            duration=int(1000.0 / inputs["frames_per_s"]),
            exif=exif,
            lossless=inputs["is_lossless"],
            quality=inputs["quality"],
            method=inputs["effort"],
        )
        return {"files": [str(path)]}


class ImageSaveApng(HostFn):
    """Write a batch as one animated PNG file."""

    name = "image.save_apng"
    takes = "images directory stem metadata frames_per_s compress_level"
    gives = "files"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Write `{stem}_0.part` and return its path in a list; metadata: in `comf` chunks after the pixels."""
        chunks = PngInfo()
        for key, text in (inputs["metadata"] or {}).items():
            chunks.add(
                b"comf", key.encode("latin-1", "strict") + b"\0" + text.encode("latin-1", "strict"), True
            )
        first, *others = _frames(inputs["images"])
        path = _part(inputs)
        first.save(
            path,
            format="PNG",
            save_all=True,
            append_images=others,
            duration=int(1000.0 / inputs["frames_per_s"]),
            pnginfo=chunks,
            compress_level=inputs["compress_level"],
        )
        return {"files": [str(path)]}


class ImageSaveDeep(HostFn):
    """Write a batch as PNG files with 16 bits per value (PNG specification, third edition)."""

    name = "image.save_deep"
    takes = "images directory stem metadata compress_level"
    gives = "files"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Write `{stem}_{index}.part` per image and return the paths. Raises PromptError for other channels."""
        images: Tensor = inputs["images"]
        if images.shape[-1] not in _PNG_COLOR_TYPES:
            raise PromptError(f"a PNG file has 1, 3 or 4 channels, not {images.shape[-1]}")
        texts = PngInfo()
        for key, text in (inputs["metadata"] or {}).items():
            texts.add_text(key, text)
        files = []
        for index, image in enumerate(images):
            path = _part(inputs, index)
            pixels = (image.clamp(0.0, 1.0) * 65535.0).round().numpy().astype(">u2")
            path.write_bytes(_png(pixels, texts, inputs["compress_level"]))
            files.append(str(path))
        return {"files": files}


def _png(pixels: np.ndarray[Any, Any], texts: PngInfo, compress_level: int) -> bytes:
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 16, _PNG_COLOR_TYPES[channels], 0, 0, 0)
    rows = np.zeros((height, 1 + width * channels * 2), np.uint8)  # each row begins with 0: no filter
    rows[:, 1:] = pixels.reshape(height, -1).view(np.uint8)
    chunks = [(b"IHDR", header), *((chunk[0], chunk[1]) for chunk in texts.chunks)]
    chunks += [(b"IDAT", zlib.compress(rows.tobytes(), compress_level)), (b"IEND", b"")]
    return _PNG_SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _frames(images: Tensor) -> Iterator[Image.Image]:
    return (Image.fromarray(pixels) for pixels in to_8bit(images))


def _part(inputs: Mapping[str, Any], index: int = 0) -> Path:
    directory = Path(inputs["directory"])
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f"{inputs['stem']}_{index}.part"
