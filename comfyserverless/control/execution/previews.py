"""Read how a prompt wants to see latents while they are sampled, and find the files that this takes.

`auto` is `latent2rgb`, as in ComfyUI: `taesd` is shown only to those who ask for it by name.
"""

from __future__ import annotations

from typing import Any

from comfyserverless.control.files import FolderPaths
from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import TINY_AUTOENCODERS, FileRef, Value

PREVIEW_METHODS = ("none", "auto", "latent2rgb", "taesd")
_FOLDER = "vae_approx"


def preview_method(wanted: Any, default: str) -> str:
    """Return the method of a prompt; wanted: its `preview_method`, which says nothing if it is unknown."""
    return wanted if isinstance(wanted, str) and wanted in PREVIEW_METHODS else default


def preview_of(method: str, size_px: int, files: FolderPaths) -> Value:
    """Return what the `preview` port of a sampling step takes for a method (see `core.modelfn`)."""
    if method == "none":
        return None
    return {"size_px": size_px, "decoders": _decoders(files) if method == "taesd" else None}


def _decoders(files: FolderPaths) -> dict[str, FileRef]:
    """Find the decoder of each tiny autoencoder: the first file whose name begins as ComfyUI expects."""
    names = files.names(_FOLDER)
    found: dict[str, FileRef] = {}
    for name in TINY_AUTOENCODERS:
        file = next((each for each in names if each.startswith(f"{name}_decoder")), None)
        try:
            if file is not None:
                found[name] = files.find(_FOLDER, file)
        except (OSError, PromptError):  # gone since the folder was read: previews are not worth a failure
            continue
    return found
