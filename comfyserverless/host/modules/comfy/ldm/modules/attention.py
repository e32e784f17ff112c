"""ComfyUI's `comfy.ldm.modules.attention`."""

from comfyserverless.host.layers.attention import (
    GEGLU,
    CrossAttention,
    FeedForward,
    attention_basic,
    default,
    exists,
    optimized_attention,
    optimized_attention_for_device,
    zero_module,
)
from comfyserverless.host.layers.lookups import refused

attention_pytorch = optimized_attention_masked = optimized_attention

__all__ = [
    "GEGLU",
    "CrossAttention",
    "FeedForward",
    "attention_basic",
    "attention_pytorch",
    "default",
    "exists",
    "optimized_attention",
    "optimized_attention_for_device",
    "optimized_attention_masked",
    "zero_module",
]
__getattr__ = refused(__name__)
