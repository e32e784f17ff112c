"""ComfyUI's `comfy_api.latest._input.basic_types`."""

from comfyserverless.host.api.media.kinds import AudioInput, ImageInput, LatentInput, MaskInput

__all__ = ["AudioInput", "ImageInput", "LatentInput", "MaskInput"]
