"""Look at saved pictures without leaving files open."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image


@dataclass(frozen=True)
class Seen:
    """What a picture file shows and carries. corner: its first pixel."""

    format: str | None
    size: tuple[int, int]
    frames: int
    corner: Any
    texts: dict[Any, Any]
    exif: dict[int, Any]


def look(path: Path) -> Seen:
    """Read a picture file."""
    with Image.open(path) as image:
        frames = int(getattr(image, "n_frames", 1))
        corner = image.convert("RGB").getpixel((0, 0))
        return Seen(image.format, image.size, frames, corner, dict(image.info), dict(image.getexif()))
