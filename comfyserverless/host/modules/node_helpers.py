"""ComfyUI's `node_helpers`."""

from comfyserverless.host.helpers.conditioning import (
    conditioning_set_values,
    hasher,
    image_alpha_fix,
    pillow,
    string_to_torch_dtype,
)
from comfyserverless.host.missing import missing_names

__all__ = ["conditioning_set_values", "hasher", "image_alpha_fix", "pillow", "string_to_torch_dtype"]
__getattr__ = missing_names(__name__)
