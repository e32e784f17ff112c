"""ComfyUI's `comfy_api.latest._input.video_types`."""

from comfyserverless.host.api.media.video import VideoInput

__all__ = ["VideoInput"]
