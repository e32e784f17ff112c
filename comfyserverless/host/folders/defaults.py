"""Name the model folders of a server whose own list did not come (a worker, a test), in ComfyUI's layout."""

from __future__ import annotations

from pathlib import Path

from comfyserverless.core.hosting import FolderInfo, HostSettings

MODEL_EXTENSIONS = (".ckpt", ".pt", ".pt2", ".bin", ".pth", ".safetensors", ".pkl", ".sft")

ALIASES = {"unet": "diffusion_models", "clip": "text_encoders"}
"""Other names of keys; helpers know them, the table itself does not."""

_SAME_NAME = (
    "checkpoints",
    "loras",
    "vae",
    "clip_vision",
    "style_models",
    "embeddings",
    "vae_approx",
    "gligen",
    "upscale_models",
    "latent_upscale_models",
    "hypernetworks",
    "photomaker",
    "model_patches",
    "audio_encoders",
)
_DIRECTORIES = {
    **{key: (key,) for key in _SAME_NAME},
    "text_encoders": ("text_encoders", "clip"),
    "diffusion_models": ("unet", "diffusion_models"),
    "controlnet": ("controlnet", "t2i_adapter"),
}
_OTHERS = {"configs": (".yaml",), "diffusers": ("folder",), "classifiers": ("",)}


def default_folders(settings: HostSettings) -> dict[str, FolderInfo]:
    """Return the folders of a server: those it named, else ComfyUI's below its models folder."""
    if settings.folders:
        return dict(settings.folders)
    root = Path(settings.models)
    found = {
        key: FolderInfo(tuple(str(root / name) for name in names), MODEL_EXTENSIONS)
        for key, names in _DIRECTORIES.items()
    }
    found |= {key: FolderInfo((str(root / key),), extensions) for key, extensions in _OTHERS.items()}
    found["custom_nodes"] = FolderInfo((str(Path(settings.base) / "custom_nodes"),), ())
    return found
