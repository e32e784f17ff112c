"""Know the classes of `comfy.clip_vision`; this server has no vision models."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

from comfyserverless.host.layers.refusing import refuse

_MEAN = (0.48145466, 0.4578275, 0.40821073)
_DEVIATION = (0.26862954, 0.26130258, 0.27577711)


class Output:
    """What a vision model says of pictures; by attribute and by key."""

    last_hidden_state: Any = None
    image_embeds: Any = None
    penultimate_hidden_states: Any = None

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)

    def __setitem__(self, key: str, item: Any) -> None:
        setattr(self, key, item)


def clip_preprocess(
    image: Tensor, size: int = 224, mean: Any = _MEAN, std: Any = _DEVIATION, crop: bool = True
) -> Tensor:
    """Return pictures [B, H, W, C] in 0..1 as CLIP sees them: [B, 3, size, size], normalised."""
    pictures = image[..., :3].movedim(-1, 1)
    if tuple(pictures.shape[-2:]) != (size, size):
        height, width = pictures.shape[-2:]
        scale = size / min(height, width)
        wanted = (round(height * scale), round(width * scale)) if crop else (size, size)
        pictures = torch.nn.functional.interpolate(pictures, wanted, mode="bicubic", antialias=True)
        top, left = (pictures.shape[-2] - size) // 2, (pictures.shape[-1] - size) // 2
        pictures = pictures[:, :, top : top + size, left : left + size]
    pictures = torch.clip(255.0 * pictures, 0, 255).round() / 255.0
    channels = (1, 3, 1, 1)
    normal: Tensor = (pictures - torch.tensor(mean).view(channels)) / torch.tensor(std).view(channels)
    return normal


class ClipVisionModel:
    """A vision model; none can be made here."""

    def __init__(self, json_config: Any) -> None:
        refuse("comfy.clip_vision.ClipVisionModel", "this server has no vision models")

    def encode_image(self, image: Tensor, crop: bool = True) -> Output:
        """Refuse."""
        return refuse("ClipVisionModel.encode_image", "this server has no vision models")


def load(ckpt_path: str) -> NoReturn:
    """Refuse."""
    refuse("comfy.clip_vision.load", "this server has no vision models")


def load_clipvision_from_sd(sd: Any, prefix: str = "", convert_keys: bool = False) -> NoReturn:
    """Refuse."""
    refuse("comfy.clip_vision.load_clipvision_from_sd", "this server has no vision models")
