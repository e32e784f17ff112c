"""Small functions on conditioning, files and pictures that packs share (`node_helpers`)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from PIL import ImageFile, UnidentifiedImageError
from torch import Tensor

from comfyserverless.host.flags.arguments import arguments


def conditioning_set_values(
    conditioning: Iterable[Any], values: Mapping[str, Any] | None = None, append: bool = False
) -> list[Any]:
    """Return a copy of a conditioning with values set in each entry.

    append: values are lists, and come after what an entry has under the same name.
    """
    changed = []
    for tensor, settings in conditioning:
        copied = dict(settings)
        for name, value in (values or {}).items():
            before = copied.get(name) if append else None
            copied[name] = value if before is None else before + value
        changed.append([tensor, copied])
    return changed


def pillow(fn: Callable[[Any], Any], arg: Any) -> Any:
    """Call a function of Pillow, again for a file that is cut off, if it will not have it."""
    try:
        return fn(arg)
    except (OSError, UnidentifiedImageError, ValueError):
        before = ImageFile.LOAD_TRUNCATED_IMAGES
        ImageFile.LOAD_TRUNCATED_IMAGES = True
        try:
            return fn(arg)
        finally:
            ImageFile.LOAD_TRUNCATED_IMAGES = before


def hasher() -> Callable[..., Any]:
    """Return the function that makes digests of files."""
    function: Callable[..., Any] = getattr(hashlib, arguments().default_hashing_function)
    return function


def string_to_torch_dtype(string: str) -> torch.dtype | None:
    """Return the type of a short name; None for others."""
    names = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    return names.get(string)


def image_alpha_fix(destination: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
    """Return two batches of pictures [B, H, W, C] with as many channels, those of the destination.

    A source without alpha gets an opaque one.
    """
    channels = destination.shape[-1]
    if source.shape[-1] < channels:
        source = torch.nn.functional.pad(source, (0, channels - source.shape[-1]), value=1.0)
    return destination, source[..., :channels]
