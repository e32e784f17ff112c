"""ComfyUI's `comfy.model_detection`: U-Nets are told apart, other names can be imported."""

from comfyserverless.host.detecting.unets import (
    count_blocks,
    detect_unet_config,
    model_config_from_unet,
    model_config_from_unet_config,
    unet_prefix_from_state_dict,
)
from comfyserverless.host.layers.lookups import refused

__all__ = [
    "count_blocks",
    "detect_unet_config",
    "model_config_from_unet",
    "model_config_from_unet_config",
    "unet_prefix_from_state_dict",
]
__getattr__ = refused(__name__)
