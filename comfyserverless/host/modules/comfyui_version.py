"""ComfyUI's `comfyui_version`: the version whose behaviour this server follows."""

from comfyserverless.core.hosting import COMPATIBLE_VERSION

__version__ = COMPATIBLE_VERSION
