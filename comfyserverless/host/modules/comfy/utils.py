"""ComfyUI's `comfy.utils`."""

from tqdm.auto import trange

from comfyserverless.host.helpers.attributes import (
    copy_to_param,
    get_attr,
    set_attr,
    set_attr_buffer,
    set_attr_param,
)
from comfyserverless.host.helpers.files import load_torch_file, safetensors_header, save_torch_file
from comfyserverless.host.helpers.progress import Hook, ProgressBar, change_owner, report
from comfyserverless.host.helpers.scaling import (
    bislerp,
    common_upscale,
    lanczos,
    repeat_to_batch_size,
    reshape_mask,
    resize_to_batch_size,
    string_to_seed,
)
from comfyserverless.host.helpers.states import (
    UNET_MAP_BASIC,
    calculate_parameters,
    convert_sd_to,
    state_dict_key_replace,
    state_dict_prefix_replace,
    unet_to_diffusers,
    weight_dtype,
)
from comfyserverless.host.helpers.tiling import get_tiled_scale_steps, tiled_scale, tiled_scale_multidim
from comfyserverless.host.missing import missing_names

ALWAYS_SAFE_LOAD = True
PROGRESS_BAR_ENABLED = True
PROGRESS_BAR_HOOK: Hook | None = report
model_trange = trange


def set_progress_bar_enabled(enabled: bool) -> None:
    """Say whether bars are wanted on the console; those of packs ask for it."""
    change_owner("PROGRESS_BAR_ENABLED", enabled)


def set_progress_bar_global_hook(function: Hook | None) -> None:
    """Set what bars call that are made from now on: (value, total, preview, node_id=None)."""
    change_owner("PROGRESS_BAR_HOOK", function)


__all__ = [
    "ALWAYS_SAFE_LOAD",
    "PROGRESS_BAR_ENABLED",
    "PROGRESS_BAR_HOOK",
    "UNET_MAP_BASIC",
    "ProgressBar",
    "bislerp",
    "calculate_parameters",
    "common_upscale",
    "convert_sd_to",
    "copy_to_param",
    "get_attr",
    "get_tiled_scale_steps",
    "lanczos",
    "load_torch_file",
    "model_trange",
    "repeat_to_batch_size",
    "reshape_mask",
    "resize_to_batch_size",
    "safetensors_header",
    "save_torch_file",
    "set_attr",
    "set_attr_buffer",
    "set_attr_param",
    "set_progress_bar_enabled",
    "set_progress_bar_global_hook",
    "state_dict_key_replace",
    "state_dict_prefix_replace",
    "string_to_seed",
    "tiled_scale",
    "tiled_scale_multidim",
    "trange",
    "unet_to_diffusers",
    "weight_dtype",
]
__getattr__ = missing_names(__name__)
