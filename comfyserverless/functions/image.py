"""Load, save and scale images on the CPU lane.

IMAGE is [B, H, W, 3 or 4] float32 in 0..1; MASK is [B, H, W] float32, 1 where masked.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image, ImageFile, ImageOps, ImageSequence
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import FileRef
from comfyserverless.functions.host import HostFn
from comfyserverless.functions.resampling import resample, to_8bit
from comfyserverless.sdk.modelfn import IoSetup, ModelFn

# What stands for "nothing is masked" where an image has no alpha channel, as in ComfyUI.
_EMPTY_MASK_PX = 64
# MPO files (phones' JPEGs) hold other views of the picture, such as a depth map, not further frames.
_SINGLE_FRAME_FORMATS = ("MPO",)
_DEEP_GRAY_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N")

# What Pillow raises on files that are no image, damaged, or unreasonable; its decoders trust what they read.
_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    LookupError,
    TypeError,
    ArithmeticError,
    AttributeError,
    EOFError,
    struct.error,
    Image.DecompressionBombError,
)

_Decoded = TypeVar("_Decoded")

# Pillow's switch for damaged files is a global of the process.
_pillow_lock = threading.Lock()


class ImageLoad(ModelFn):
    """Read an image file; frames of equal size become a batch."""

    name = "image.load"
    lane = "cpu"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        io.add_input("file")
        io.add_output("images")
        io.add_output("mask")

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return images [B, H, W, 3] and mask [B, H, W] (1 - alpha; 64x64 zeros without alpha).

        Raises PromptError if the file is missing or no image; one that ends early is used as far as it goes.
        """
        file: FileRef = inputs["file"]
        try:
            frames = _read_frames(file.path)
        except _DAMAGE as exc:
            raise _unreadable(file, exc) from exc
        images, masks = zip(*frames, strict=True)
        if len({mask.shape for mask in masks}) > 1:  # some frames of an animation have alpha, some have not
            full = images[0].shape[:2]
            masks = tuple(mask if mask.shape == full else torch.zeros(full) for mask in masks)
        return {"images": torch.stack(images), "mask": torch.stack(masks)}


class ImageLoadMask(HostFn):
    """Read one channel of an image file as a mask."""

    name = "image.load_mask"
    takes = "file channel"
    gives = "mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return mask [1, H, W] of the first frame: a colour's channel, or 1 - alpha (0 without alpha).

        Raises PromptError if the file is missing or no image; one that ends early is used as far as it goes.
        """
        file: FileRef = inputs["file"]
        try:
            image = _read_first(file.path)
        except _DAMAGE as exc:
            raise _unreadable(file, exc) from exc
        band = _to_tensor(image.getchannel(inputs["channel"][0].upper()))
        return {"mask": (1.0 - band if inputs["channel"] == "alpha" else band)[None]}


class ImageSave(ModelFn):
    """Write a batch as PNG files, with texts that let the page open the graph again."""

    name = "image.save"
    lane = "cpu"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("images", "directory", "stem", "metadata", "compress_level"):
            io.add_input(port)
        io.add_output("files")

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Write `{stem}_{index}.part` per image and return the paths; equal inputs give equal bytes."""
        chunks = PngInfo()
        for key, text in (inputs["metadata"] or {}).items():
            chunks.add_text(key, text)
        directory = Path(inputs["directory"])
        directory.mkdir(parents=True, exist_ok=True)
        files = []
        for index, pixels in enumerate(to_8bit(inputs["images"])):
            path = directory / f"{inputs['stem']}_{index}.part"
            image = Image.fromarray(pixels)
            image.save(path, format="PNG", pnginfo=chunks, compress_level=inputs["compress_level"])
            files.append(str(path))
        return {"files": files}


class ImageScale(ModelFn):
    """Resize a batch of images."""

    name = "image.scale"
    lane = "cpu"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("images", "width", "height", "method", "crop"):
            io.add_input(port)
        io.add_output("images")

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return [B, height, width, C]; see `resampling.resample`."""
        images: Tensor = inputs["images"]
        width, height = inputs["width"], inputs["height"]
        scaled = resample(images.movedim(-1, 1), width, height, inputs["method"], inputs["crop"])
        return {"images": scaled.movedim(1, -1)}


def _unreadable(file: FileRef, error: BaseException) -> PromptError:
    return PromptError(f"cannot read image {Path(file.path).name!r}: {error}")


def _read_frames(path: str) -> list[tuple[Tensor, Tensor]]:
    """Return (image [H, W, 3], mask [H', W']) per frame."""
    return _as_far_as_it_goes(lambda: list(_decode_frames(path)))


def _read_first(path: str) -> Image.Image:
    """Return the first frame upright, as 8-bit RGBA."""
    return _as_far_as_it_goes(lambda: _decode_first(path))


def _as_far_as_it_goes(decode: Callable[[], _Decoded]) -> _Decoded:
    """Decode, and once more with what is there if the file ends early."""
    try:
        return decode()
    except OSError as exc:
        if "truncated" not in str(exc):
            raise
    with _pillow_lock:
        ImageFile.LOAD_TRUNCATED_IMAGES = True
        try:
            return decode()
        finally:
            ImageFile.LOAD_TRUNCATED_IMAGES = False


def _decode_first(path: str) -> Image.Image:
    with Image.open(path) as file:
        upright = ImageOps.exif_transpose(file)
        return (_to_rgb(upright) if upright.mode in _DEEP_GRAY_MODES else upright).convert("RGBA")


def _decode_frames(path: str) -> Iterator[tuple[Tensor, Tensor]]:
    with Image.open(path) as file:
        has_one_frame = file.format in _SINGLE_FRAME_FORMATS
        first_size: tuple[int, int] | None = None
        for frame in ImageSequence.Iterator(file):
            upright = ImageOps.exif_transpose(frame)
            first_size = first_size or upright.size
            if upright.size == first_size:
                yield _to_tensor(_to_rgb(upright)), _mask_of(upright)
            if has_one_frame:
                return


def _to_rgb(image: Image.Image) -> Image.Image:
    """Convert any mode to 8-bit RGB; deep grays are taken as 16-bit."""
    if image.mode in _DEEP_GRAY_MODES:
        gray = np.clip(np.asarray(image).astype(np.float64) / 255.0, 0, 255).astype(np.uint8)
        return Image.fromarray(gray).convert("RGB")
    return image.convert("RGB")


def _mask_of(image: Image.Image) -> Tensor:
    if "A" in image.getbands():
        return 1.0 - _to_tensor(image.getchannel("A"))
    if image.mode == "P" and "transparency" in image.info:
        return 1.0 - _to_tensor(image.convert("RGBA").getchannel("A"))
    return torch.zeros(_EMPTY_MASK_PX, _EMPTY_MASK_PX)


def _to_tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.asarray(image).astype(np.float32) / 255.0)
