"""ComfyUI's `comfy.k_diffusion.utils`."""

from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.sampling.kdiffusion import append_dims

__all__ = ["append_dims"]
__getattr__ = refused(__name__)
