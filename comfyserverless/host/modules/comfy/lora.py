"""ComfyUI's `comfy.lora`."""

from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.models.adapters import (
    calculate_weight,
    load_lora,
    model_lora_keys_clip,
    model_lora_keys_unet,
)

__all__ = ["calculate_weight", "load_lora", "model_lora_keys_clip", "model_lora_keys_unet"]
__getattr__ = refused(__name__)
