"""ComfyUI's `comfy_api.latest._util`: parts of films and solids, and how films are stored."""

from comfyserverless.host.api.media.components import VideoCodec, VideoComponents, VideoContainer
from comfyserverless.host.api.media.shapes import MESH, SVG_TEXT, VOXEL, File3DData
from comfyserverless.host.missing import missing_names

SVG = SVG_TEXT
File3D = File3DData

__all__ = ["MESH", "SVG", "VOXEL", "File3D", "VideoCodec", "VideoComponents", "VideoContainer"]
__getattr__ = missing_names("comfy_api.latest.Types")
