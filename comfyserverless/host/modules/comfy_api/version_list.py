"""ComfyUI's `comfy_api.version_list`."""

from comfyserverless.host.api.runtime import ComfyAPI

supported_versions = [ComfyAPI]

__all__ = ["supported_versions"]
