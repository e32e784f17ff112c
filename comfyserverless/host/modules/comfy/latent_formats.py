"""ComfyUI's `comfy.latent_formats`."""

from comfyserverless.host.layers.latents import FORMATS as _FORMATS
from comfyserverless.host.layers.latents import SD15, SDXL, LatentFormat
from comfyserverless.host.layers.lookups import refused

globals().update(_FORMATS)

__all__ = ["SD15", "SDXL", "LatentFormat"]
__getattr__ = refused(__name__)
