"""ComfyUI's `comfy_api.torch_helpers`."""

from comfyserverless.host.missing import missing_names, unsupported

set_torch_compile_wrapper = unsupported("comfy_api.torch_helpers.set_torch_compile_wrapper")

__all__ = ["set_torch_compile_wrapper"]
__getattr__ = missing_names("comfy_api.torch_helpers")
