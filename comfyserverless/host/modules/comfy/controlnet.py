"""ComfyUI's `comfy.controlnet`."""

from comfyserverless.host.encoders.control import ControlBase, ControlNet, StrengthType
from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.layers.refusing import missing_class
from comfyserverless.host.models.loading import load_controlnet, load_controlnet_state_dict

ControlLora = missing_class("comfy.controlnet.ControlLora", ControlNet)
ControlNetSD35 = missing_class("comfy.controlnet.ControlNetSD35", ControlNet)
T2IAdapter = missing_class("comfy.controlnet.T2IAdapter", ControlBase)

__all__ = [
    "ControlBase",
    "ControlLora",
    "ControlNet",
    "ControlNetSD35",
    "StrengthType",
    "T2IAdapter",
    "load_controlnet",
    "load_controlnet_state_dict",
]
__getattr__ = refused(__name__)
