"""ComfyUI's `comfy.float`."""

from comfyserverless.host.devices.precision import stochastic_rounding
from comfyserverless.host.layers.lookups import refused

__all__ = ["stochastic_rounding"]
__getattr__ = refused(__name__)
