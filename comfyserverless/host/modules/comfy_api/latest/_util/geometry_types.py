"""ComfyUI's `comfy_api.latest._util.geometry_types`."""

from comfyserverless.host.api.media.shapes import MESH, VOXEL
from comfyserverless.host.api.media.shapes import File3DData as File3D

__all__ = ["MESH", "VOXEL", "File3D"]
