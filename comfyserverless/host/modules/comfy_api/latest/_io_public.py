"""ComfyUI's `comfy_api.latest._io_public`."""

from comfy_api.latest._io import *  # noqa: F403  the same names
from comfyserverless.host.missing import missing_names

__getattr__ = missing_names("comfy_api.latest.io")
