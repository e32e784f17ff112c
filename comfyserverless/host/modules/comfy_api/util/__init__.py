"""ComfyUI's `comfy_api.util`."""

from comfyserverless.host.api.media.components import VideoCodec, VideoComponents, VideoContainer
from comfyserverless.host.api.media.shapes import MESH, VOXEL
from comfyserverless.host.missing import missing_names

__all__ = ["MESH", "VOXEL", "VideoCodec", "VideoComponents", "VideoContainer"]
__getattr__ = missing_names("comfy_api.util")
