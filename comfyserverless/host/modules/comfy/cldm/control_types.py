"""ComfyUI's `comfy.cldm.control_types`."""

from comfyserverless.core.values import UNION_TYPES
from comfyserverless.host.layers.lookups import refused

UNION_CONTROLNET_TYPES = {name: number for number, name in enumerate(UNION_TYPES)}

__all__ = ["UNION_CONTROLNET_TYPES"]
__getattr__ = refused(__name__)
