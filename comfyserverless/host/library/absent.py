"""Declare the inputs of ComfyUI's loaders that this server lacks: packs build their own loaders on them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_TYPES = ("stable_diffusion", "sdxl", "sd3", "flux", "hunyuan_video", "hidream")
_DTYPES = ("default", "fp8_e4m3fn", "fp8_e4m3fn_fast", "fp8_e5m2")

_INPUTS: dict[str, dict[str, str | tuple[str, ...]]] = {
    "UNETLoader": {"unet_name": "diffusion_models", "weight_dtype": _DTYPES},
    "DualCLIPLoader": {"clip_name1": "text_encoders", "clip_name2": "text_encoders", "type": _TYPES},
    "TripleCLIPLoader": dict.fromkeys(("clip_name1", "clip_name2", "clip_name3"), "text_encoders"),
    "CLIPVisionLoader": {"clip_name": "clip_vision"},
    "StyleModelLoader": {"style_model_name": "style_models"},
    "GLIGENLoader": {"gligen_name": "gligen"},
    "DiffControlNetLoader": {"control_net_name": "controlnet"},
    "unCLIPCheckpointLoader": {"ckpt_name": "checkpoints"},
}
"""Class -> its inputs by name: a key of model folders, or choices."""


def absent_inputs(name: str) -> dict[str, Any]:
    """Return the required inputs of a class, with the files of the moment; none for classes not listed."""
    list_files = import_module("folder_paths").get_filename_list
    return {
        each: (list_files(kind) if isinstance(kind, str) else list(kind),)
        for each, kind in _INPUTS.get(name, {}).items()
    }
