"""ComfyUI's `comfy_api.latest._ui`, which packs know as `ui`."""

from comfyserverless.host.api.io.widgets import FolderType
from comfyserverless.host.api.ui.pictures import ImageSaveHelper
from comfyserverless.host.api.ui.previews import (
    PreviewAudio,
    PreviewImage,
    PreviewMask,
    PreviewText,
    PreviewUI3D,
    PreviewVideo,
)
from comfyserverless.host.api.ui.results import SavedAudios, SavedImages, SavedResult, UIOutput
from comfyserverless.host.api.ui.sounds import AudioSaveHelper
from comfyserverless.host.missing import missing_names

_UIOutput = UIOutput

__all__ = [
    "AudioSaveHelper",
    "FolderType",
    "ImageSaveHelper",
    "PreviewAudio",
    "PreviewImage",
    "PreviewMask",
    "PreviewText",
    "PreviewUI3D",
    "PreviewVideo",
    "SavedAudios",
    "SavedImages",
    "SavedResult",
    "UIOutput",
    "_UIOutput",
]
__getattr__ = missing_names("comfy_api.latest.ui")
