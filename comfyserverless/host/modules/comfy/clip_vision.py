"""ComfyUI's `comfy.clip_vision`."""

from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.layers.vision import (
    ClipVisionModel,
    Output,
    clip_preprocess,
    load,
    load_clipvision_from_sd,
)

__all__ = ["ClipVisionModel", "Output", "clip_preprocess", "load", "load_clipvision_from_sd"]
__getattr__ = refused(__name__)
