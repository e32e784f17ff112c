"""ComfyUI's `comfy.sdxl_clip`: its names can be imported."""

from comfyserverless.host.layers.lookups import refused

__getattr__ = refused(__name__)
