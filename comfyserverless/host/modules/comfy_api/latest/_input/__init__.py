"""ComfyUI's `comfy_api.latest._input`: types of inputs for annotations."""

from comfyserverless.host.api.media.kinds import AudioInput, CurveInput, ImageInput, LatentInput, MaskInput
from comfyserverless.host.api.media.video import VideoInput
from comfyserverless.host.missing import missing_names

__all__ = ["AudioInput", "CurveInput", "ImageInput", "LatentInput", "MaskInput", "VideoInput"]
__getattr__ = missing_names("comfy_api.latest.Input")
