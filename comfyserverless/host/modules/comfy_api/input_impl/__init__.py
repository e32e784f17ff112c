"""ComfyUI's `comfy_api.input_impl`."""

from comfyserverless.host.api.media.video import VideoFromComponents, VideoFromFile
from comfyserverless.host.missing import missing_names

__all__ = ["VideoFromComponents", "VideoFromFile"]
__getattr__ = missing_names("comfy_api.input_impl")
