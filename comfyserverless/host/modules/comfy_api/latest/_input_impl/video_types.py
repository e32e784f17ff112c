"""ComfyUI's `comfy_api.latest._input_impl.video_types`."""

from comfyserverless.host.api.media.video import VideoFromComponents, VideoFromFile

__all__ = ["VideoFromComponents", "VideoFromFile"]
