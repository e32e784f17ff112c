"""ComfyUI's `comfy.comfy_types.node_typing`."""

from comfyserverless.host.helpers.typing_names import (
    IO,
    CheckLazyMixin,
    ComfyNodeABC,
    FileLocator,
    HiddenInputTypeDict,
    InputTypeDict,
    InputTypeOptions,
)
from comfyserverless.host.missing import missing_names

__all__ = [
    "IO",
    "CheckLazyMixin",
    "ComfyNodeABC",
    "FileLocator",
    "HiddenInputTypeDict",
    "InputTypeDict",
    "InputTypeOptions",
]
__getattr__ = missing_names(__name__)
