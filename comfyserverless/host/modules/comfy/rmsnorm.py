"""ComfyUI's `comfy.rmsnorm`."""

from torch.nn import RMSNorm
from torch.nn.functional import rms_norm

from comfyserverless.host.layers.lookups import refused

__all__ = ["RMSNorm", "rms_norm"]
__getattr__ = refused(__name__)
