"""ComfyUI's `comfy.patcher_extension`."""

from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.models.extension import (
    CallbacksMP,
    PatcherInjection,
    WrapperExecutor,
    WrappersMP,
    add_callback,
    add_callback_with_key,
    add_wrapper,
    add_wrapper_with_key,
    copy_nested_dicts,
    get_all_callbacks,
    get_all_wrappers,
    get_callbacks_with_key,
    get_wrappers_with_key,
    merge_nested_dicts,
)

__all__ = [
    "CallbacksMP",
    "PatcherInjection",
    "WrapperExecutor",
    "WrappersMP",
    "add_callback",
    "add_callback_with_key",
    "add_wrapper",
    "add_wrapper_with_key",
    "copy_nested_dicts",
    "get_all_callbacks",
    "get_all_wrappers",
    "get_callbacks_with_key",
    "get_wrappers_with_key",
    "merge_nested_dicts",
]
__getattr__ = refused(__name__)
