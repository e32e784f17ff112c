"""ComfyUI's `comfy_api.latest`: node classes with a schema."""

from comfy_api.latest import _input as Input
from comfy_api.latest import _input_impl as InputImpl
from comfy_api.latest import _io, _ui
from comfy_api.latest import _util as Types
from comfyserverless.host.api.extension import ComfyExtension
from comfyserverless.host.api.runtime import ComfyAPI, ComfyAPISync
from comfyserverless.host.missing import missing_names

io = IO = _io
ui = UI = _ui
ComfyAPI_latest = ComfyAPI

__all__ = [
    "IO",
    "UI",
    "ComfyAPI",
    "ComfyAPISync",
    "ComfyAPI_latest",
    "ComfyExtension",
    "Input",
    "InputImpl",
    "Types",
    "io",
    "ui",
]
__getattr__ = missing_names("comfy_api.latest")
