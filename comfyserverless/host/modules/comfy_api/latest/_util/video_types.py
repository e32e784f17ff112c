"""ComfyUI's `comfy_api.latest._util.video_types`."""

from comfyserverless.host.api.media.components import VideoCodec, VideoComponents, VideoContainer

__all__ = ["VideoCodec", "VideoComponents", "VideoContainer"]
