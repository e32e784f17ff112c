"""ComfyUI's `comfy_api.input.video_types`."""

from comfyserverless.host.api.media.video import VideoInput

__all__ = ["VideoInput"]
