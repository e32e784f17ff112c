"""Save pictures as PNG, animated PNG or WebP, with what lets the page open the graph again."""

from __future__ import annotations

import io
from typing import Any

import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from comfyserverless.functions.resampling import to_8bit
from comfyserverless.host.api.ui.files import SavePlace, embedded_texts
from comfyserverless.host.api.ui.results import SavedImages, SavedResult

_EXIF_MODEL = 0x0110
"""The EXIF tag that holds the prompt; the tags before it hold the others."""

_WEBP_METHODS = {"default": 4, "fastest": 0, "slowest": 6}


class ImageSaveHelper:
    """Save pictures. images: [B, H, W, C] float 0..1; cls: the running node class, for what is embedded."""

    @staticmethod
    def save_images(
        images: torch.Tensor, filename_prefix: str, folder_type: Any, cls: Any, compress_level: int = 4
    ) -> list[SavedResult]:
        """Save each picture as PNG and return the files in order."""
        chunks = PngInfo()
        for key, text in embedded_texts(cls).items():
            chunks.add_text(key, text)
        place = _place(images, filename_prefix, folder_type)
        saved = []
        for index, picture in enumerate(_pictures(images)):
            content = _encoded(picture, "PNG", pnginfo=chunks, compress_level=compress_level)
            saved.append(place.write(content, "png", index))
        return saved

    @staticmethod
    def get_save_images_ui(
        images: torch.Tensor, filename_prefix: str, cls: Any, compress_level: int = 4
    ) -> SavedImages:
        """Save each picture as PNG to the output folder and return what shows them."""
        return SavedImages(ImageSaveHelper.save_images(images, filename_prefix, "output", cls, compress_level))

    @staticmethod
    def save_animated_png(
        images: torch.Tensor,
        filename_prefix: str,
        folder_type: Any,
        cls: Any,
        fps: float,
        *settings: Any,
        **named: Any,
    ) -> SavedResult:
        """Save the batch as one animated PNG; further setting: compress_level (0..9)."""
        level = dict(zip(("compress_level",), settings, strict=False)) | named
        chunks = PngInfo()
        for key, text in embedded_texts(cls).items():
            chunks.add(b"comf", f"{key}\0{text}".encode("latin-1", "strict"), after_idat=True)
        first, *others = _pictures(images)
        content = _encoded(
            first,
            "PNG",
            pnginfo=chunks,
            compress_level=level.get("compress_level", 4),
            save_all=True,
            duration=int(1000.0 / fps),
            append_images=others,
        )
        return _place(images, filename_prefix, folder_type).write(content, "png")

    @staticmethod
    def get_save_animated_png_ui(
        images: torch.Tensor, filename_prefix: str, cls: Any, fps: float, compress_level: int = 4
    ) -> SavedImages:
        """Save the batch as one animated PNG to the output folder and return what shows it."""
        saved = ImageSaveHelper.save_animated_png(
            images, filename_prefix, "output", cls, fps, compress_level=compress_level
        )
        return SavedImages([saved], is_animated=len(images) > 1)

    @staticmethod
    def save_animated_webp(
        images: torch.Tensor, filename_prefix: str, folder_type: Any, cls: Any, *settings: Any, **named: Any
    ) -> SavedResult:
        """Save the batch as one WebP; settings: fps, lossless, quality (0..100), method (0..6)."""
        given = dict(zip(("fps", "lossless", "quality", "method"), settings, strict=False)) | named
        first, *others = _pictures(images)
        exif = first.getexif()
        for offset, (key, text) in enumerate(embedded_texts(cls).items()):
            exif[_EXIF_MODEL - offset] = f"{key}:{text}"
        method = given.get("method", 4)
        content = _encoded(
            first,
            "WEBP",
            save_all=True,
            duration=int(1000.0 / given.get("fps", 6.0)),
            append_images=others,
            exif=exif,
            lossless=bool(given.get("lossless", True)),
            quality=given.get("quality", 80),
            method=_WEBP_METHODS.get(method, method),
        )
        return _place(images, filename_prefix, folder_type).write(content, "webp")

    @staticmethod
    def get_save_animated_webp_ui(
        images: torch.Tensor, filename_prefix: str, cls: Any, *settings: Any, **named: Any
    ) -> SavedImages:
        """Save the batch as one WebP to the output folder and return what shows it; see save_animated_webp."""
        saved = ImageSaveHelper.save_animated_webp(images, filename_prefix, "output", cls, *settings, **named)
        return SavedImages([saved], is_animated=len(images) > 1)


def _place(images: torch.Tensor, prefix: str, kind: Any) -> SavePlace:
    return SavePlace.of(prefix, kind, int(images[0].shape[1]), int(images[0].shape[0]))


def _encoded(picture: Image.Image, kind: str, **settings: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format=kind, **settings)
    return buffer.getvalue()


def _pictures(images: torch.Tensor) -> list[Image.Image]:
    return [Image.fromarray(pixels) for pixels in to_8bit(images)]
