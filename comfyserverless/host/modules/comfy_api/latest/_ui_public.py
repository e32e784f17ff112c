"""ComfyUI's `comfy_api.latest._ui_public`."""

from comfy_api.latest._ui import *  # noqa: F403  the same names
from comfyserverless.host.missing import missing_names

__getattr__ = missing_names("comfy_api.latest.ui")
