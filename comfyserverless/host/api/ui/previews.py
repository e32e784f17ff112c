"""Show what a node has made, without keeping it: files go to the temp folder."""

from __future__ import annotations

import random
import string
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from comfyserverless.functions.resampling import to_8bit
from comfyserverless.host.api.ui.pictures import ImageSaveHelper
from comfyserverless.host.api.ui.results import SavedResult, UIOutput
from comfyserverless.host.api.ui.sounds import AudioSaveHelper
from comfyserverless.host.bridge import bridge


def _prefix() -> str:
    """Return a prefix of preview files that others hardly have; it does not touch the global random state."""
    letters = random.Random(uuid.uuid4().int).choices(string.ascii_lowercase, k=5)
    return f"ComfyUI_temp_{''.join(letters)}"


class PreviewImage(UIOutput):
    """Show pictures: [B, H, W, C] float 0..1."""

    def __init__(self, image: torch.Tensor, animated: bool = False, cls: Any = None, **unused: Any) -> None:
        self.values = ImageSaveHelper.save_images(image, _prefix(), "temp", cls, compress_level=1)
        self.animated = animated

    def as_dict(self) -> dict[str, Any]:
        """Return the ui dict."""
        return {"images": self.values, "animated": [self.animated]}


class PreviewMask(PreviewImage):
    """Show masks as grey pictures: [B, H, W] or [H, W] float 0..1."""

    def __init__(self, mask: torch.Tensor, animated: bool = False, cls: Any = None, **unused: Any) -> None:
        grey = mask.reshape(-1, mask.shape[-2], mask.shape[-1], 1).expand(-1, -1, -1, 3)
        super().__init__(grey, animated, cls)


class PreviewAudio(UIOutput):
    """Let the page play sounds: a dict of waveform [B, C, T] and sample_rate, or files that exist."""

    def __init__(self, audio: Any, cls: Any = None, **unused: Any) -> None:
        if isinstance(audio, list) and all(isinstance(item, SavedResult) for item in audio):
            self.values: list[SavedResult] = audio
        else:
            self.values = AudioSaveHelper.save_audio(audio, _prefix(), "temp", cls)

    def as_dict(self) -> dict[str, Any]:
        """Return the ui dict."""
        return {"audio": self.values}


class PreviewVideo(UIOutput):
    """Let the page play films that were saved."""

    def __init__(self, values: Iterable[Any], **unused: Any) -> None:
        self.values = list(values)

    def as_dict(self) -> dict[str, Any]:
        """Return the ui dict."""
        return {"images": self.values, "animated": [True]}


class PreviewText(UIOutput):
    """Show a text."""

    def __init__(self, value: str, **unused: Any) -> None:
        self.value = value

    def as_dict(self) -> dict[str, Any]:
        """Return the ui dict."""
        return {"text": [self.value]}


class PreviewUI3D(UIOutput):
    """Show a 3D model. model_file: its name below the output folder; bg_image: [B, H, W, C] behind it."""

    def __init__(self, model_file: Any, camera_info: Any = None, **more: Any) -> None:
        self.model_file = model_file
        self.camera_info = camera_info
        self.more = {key: value for key, value in more.items() if key not in ("bg_image", "cls")}
        background = more.get("bg_image")
        self.bg_image_path = None if background is None else _background(background)

    def as_dict(self) -> dict[str, Any]:
        """Return the ui dict."""
        return {"result": [self.model_file, self.camera_info, self.bg_image_path], **self.more}


def _background(image: torch.Tensor) -> str:
    name = f"bg_{uuid.uuid4().hex}.png"
    folder = Path(bridge().places.temp)
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(to_8bit(image[:1])[0]).save(folder / name, compress_level=1)
    return f"temp/{name}"
