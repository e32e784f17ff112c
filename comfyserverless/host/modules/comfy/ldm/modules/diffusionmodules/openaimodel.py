"""ComfyUI's `comfy.ldm.modules.diffusionmodules.openaimodel`: its names, for isinstance checks."""

from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.models.network import RemoteNetwork as UNetModel

__all__ = ["UNetModel"]
__getattr__ = refused(__name__)
