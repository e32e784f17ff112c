"""ComfyUI's `comfy.ops`."""

from comfyserverless.host.layers.factories import (
    CastWeightBiasOp,
    cast_bias_weight,
    cast_to,
    cast_to_input,
    disable_weight_init,
    manual_cast,
    pick_operations,
    run_every_op,
    uncast_bias_weight,
)
from comfyserverless.host.layers.lookups import refused

__all__ = [
    "CastWeightBiasOp",
    "cast_bias_weight",
    "cast_to",
    "cast_to_input",
    "disable_weight_init",
    "manual_cast",
    "pick_operations",
    "run_every_op",
    "uncast_bias_weight",
]
__getattr__ = refused(__name__)
