"""ComfyUI's `comfy_api.internal`, as far as packs use it."""

from comfyserverless.host.api.io.node import ComfyNode as _ComfyNodeInternal
from comfyserverless.host.api.io.node import NodeOutput as _NodeOutputInternal
from comfyserverless.host.missing import missing_names

__all__ = ["_ComfyNodeInternal", "_NodeOutputInternal"]
__getattr__ = missing_names("comfy_api.internal")
