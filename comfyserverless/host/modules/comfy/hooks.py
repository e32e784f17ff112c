"""ComfyUI's `comfy.hooks`."""

from comfyserverless.host.layers.hooks import (
    EnumHookMode,
    EnumHookScope,
    EnumHookType,
    EnumWeightTarget,
    Hook,
    HookGroup,
    HookKeyframe,
    HookKeyframeGroup,
    WeightHook,
    set_conds_props,
    set_hooks_for_conditioning,
)
from comfyserverless.host.layers.lookups import refused

__all__ = [
    "EnumHookMode",
    "EnumHookScope",
    "EnumHookType",
    "EnumWeightTarget",
    "Hook",
    "HookGroup",
    "HookKeyframe",
    "HookKeyframeGroup",
    "WeightHook",
    "set_conds_props",
    "set_hooks_for_conditioning",
]
__getattr__ = refused(__name__)
