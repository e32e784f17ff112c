"""ComfyUI's `comfy.model_patcher`."""

from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.models.options import (
    create_model_options_clone,
    set_model_options_patch_replace,
    set_model_options_post_cfg_function,
    set_model_options_pre_cfg_function,
)
from comfyserverless.host.models.patcher import CoreModelPatcher, ModelPatcher

__all__ = [
    "CoreModelPatcher",
    "ModelPatcher",
    "create_model_options_clone",
    "set_model_options_patch_replace",
    "set_model_options_post_cfg_function",
    "set_model_options_pre_cfg_function",
]
__getattr__ = refused(__name__)
