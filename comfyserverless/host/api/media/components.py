"""Hold a film taken apart, and the words for how films are stored."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

import torch


class _Choice(str, Enum):  # noqa: UP042  packs see a plain mixture
    """A word that can be offered as the choices of a combo."""

    @classmethod
    def as_input(cls) -> list[str]:
        """Return the choices."""
        return [member.value for member in cls]


class VideoCodec(_Choice):
    """How pictures are compressed."""

    AUTO = "auto"
    H264 = "h264"


class VideoContainer(_Choice):
    """What kind of file it is."""

    AUTO = "auto"
    MP4 = "mp4"

    @classmethod
    def get_extension(cls, value: Any) -> str:
        """Return the extension of a kind of file, without the dot; `mp4` for AUTO. Raises ValueError."""
        return {cls.AUTO: "mp4", cls.MP4: "mp4"}[cls(value)]


@dataclass
class VideoComponents:
    """The parts of a film. images: [T, H, W, C] float 0..1; frame_rate: pictures per second; audio: AUDIO."""

    images: torch.Tensor
    frame_rate: Fraction
    audio: Any = None
    metadata: dict[str, Any] | None = None
