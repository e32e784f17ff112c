"""ComfyUI's `comfy_api.latest._input`: types of inputs for annotations."""

from comfyserverless.host.api.media.kinds import AudioInput, CurveInput, ImageInput, LatentInput, MaskInput
from comfyserverless.host.api.media.video import VideoInput
from comfyserverless.host.missing import missing_names

Audio, Curve, Image, Latent, Mask, Video = (
    AudioInput,
    CurveInput,
    ImageInput,
    LatentInput,
    MaskInput,
    VideoInput,
)

__all__ = [
    "Audio",
    "AudioInput",
    "Curve",
    "CurveInput",
    "Image",
    "ImageInput",
    "Latent",
    "LatentInput",
    "Mask",
    "MaskInput",
    "Video",
    "VideoInput",
]
__getattr__ = missing_names("comfy_api.latest.Input")
