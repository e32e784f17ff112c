"""ComfyUI's `comfy_api.latest._io`, which packs know as `io`."""

from comfyserverless.host.api.io.names import NAMES
from comfyserverless.host.missing import missing_names

globals().update(NAMES)
__all__ = sorted(NAMES)
__getattr__ = missing_names("comfy_api.latest.io")
