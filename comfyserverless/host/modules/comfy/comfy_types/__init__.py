"""ComfyUI's `comfy.comfy_types`."""

from collections.abc import Callable
from typing import Any

from comfyserverless.host.helpers.typing_names import (
    IO,
    CheckLazyMixin,
    ComfyNodeABC,
    FileLocator,
    InputTypeDict,
)
from comfyserverless.host.missing import missing_names

UnetApplyFunction = Callable[..., Any]
UnetApplyConds = dict[str, Any]
UnetParams = dict[str, Any]
UnetWrapperFunction = Callable[[UnetApplyFunction, UnetParams], Any]

__all__ = [
    "IO",
    "CheckLazyMixin",
    "ComfyNodeABC",
    "FileLocator",
    "InputTypeDict",
    "UnetApplyConds",
    "UnetApplyFunction",
    "UnetParams",
    "UnetWrapperFunction",
]
__getattr__ = missing_names(__name__)
