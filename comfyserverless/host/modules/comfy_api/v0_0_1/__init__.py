"""ComfyUI's `comfy_api.v0_0_1`: what `comfy_api.latest` has."""

from comfy_api.latest import (
    IO,
    UI,
    ComfyAPI,
    ComfyAPISync,
    ComfyExtension,
    Input,
    InputImpl,
    Types,
    io,
    ui,
)
from comfyserverless.host.missing import missing_names

ComfyAPIAdapter_v0_0_1 = ComfyAPI

__all__ = [
    "IO",
    "UI",
    "ComfyAPI",
    "ComfyAPIAdapter_v0_0_1",
    "ComfyAPISync",
    "ComfyExtension",
    "Input",
    "InputImpl",
    "Types",
    "io",
    "ui",
]
__getattr__ = missing_names("comfy_api.v0_0_1")
