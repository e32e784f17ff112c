"""Declare the inputs of ComfyUI's loaders that this server lacks: packs build their own loaders on them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_INPUTS: dict[str, dict[str, str]] = {
    "TripleCLIPLoader": dict.fromkeys(("clip_name1", "clip_name2", "clip_name3"), "text_encoders"),
    "CLIPVisionLoader": {"clip_name": "clip_vision"},
    "StyleModelLoader": {"style_model_name": "style_models"},
    "GLIGENLoader": {"gligen_name": "gligen"},
    "DiffControlNetLoader": {"control_net_name": "controlnet"},
    "unCLIPCheckpointLoader": {"ckpt_name": "checkpoints"},
}
"""Class -> its inputs by name, each with a key of model folders."""


def absent_inputs(name: str) -> dict[str, Any]:
    """Return the required inputs of a class, with the files of the moment; none for classes not listed."""
    list_files = import_module("folder_paths").get_filename_list
    return {each: (list_files(kind),) for each, kind in _INPUTS.get(name, {}).items()}
