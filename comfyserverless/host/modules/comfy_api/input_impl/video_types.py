"""ComfyUI's `comfy_api.input_impl.video_types`."""

from comfyserverless.host.api.media.video import VideoFromComponents, VideoFromFile

__all__ = ["VideoFromComponents", "VideoFromFile"]
