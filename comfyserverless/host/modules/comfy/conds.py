"""ComfyUI's `comfy.conds`."""

from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.sampling.inputs import (
    CONDConstant,
    CONDCrossAttn,
    CONDList,
    CONDNoiseShape,
    CONDRegular,
)

__all__ = ["CONDConstant", "CONDCrossAttn", "CONDList", "CONDNoiseShape", "CONDRegular"]
__getattr__ = refused(__name__)
