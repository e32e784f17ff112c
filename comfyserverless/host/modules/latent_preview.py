"""ComfyUI's `latent_preview`."""

from comfyserverless.host.flags.arguments import LatentPreviewMethod
from comfyserverless.host.helpers.previews import (
    MAX_PREVIEW_RESOLUTION,
    Latent2RGBPreviewer,
    LatentPreviewer,
    TAESDPreviewerImpl,
    get_previewer,
    prepare_callback,
    preview_to_image,
    set_preview_method,
)
from comfyserverless.host.missing import missing_names

default_preview_method = LatentPreviewMethod.NoPreviews

__all__ = [
    "MAX_PREVIEW_RESOLUTION",
    "Latent2RGBPreviewer",
    "LatentPreviewMethod",
    "LatentPreviewer",
    "TAESDPreviewerImpl",
    "get_previewer",
    "prepare_callback",
    "preview_to_image",
    "set_preview_method",
]
__getattr__ = missing_names(__name__)
