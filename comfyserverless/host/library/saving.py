"""Save and load pictures as ComfyUI's `SaveImage`, `PreviewImage` and `LoadImage` do, which packs subclass."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import string
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from comfyserverless.host.library.calls import run_node

_LETTERS = string.ascii_lowercase
_SUFFIX_LETTERS = 5


class SaveImage:
    """Write pictures into the output folder, with the graph in them."""

    RETURN_TYPES: ClassVar[tuple[Any, ...]] = ()
    FUNCTION = "save_images"
    OUTPUT_NODE = True
    CATEGORY = "image"
    DESCRIPTION = "Saves the input images to your ComfyUI output directory."

    def __init__(self) -> None:
        self.output_dir = import_module("folder_paths").get_output_directory()
        self.type = "output"
        self.prefix_append = ""
        self.compress_level = 4

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        """Return the declared inputs."""
        return {
            "required": {"images": ("IMAGE", {}), "filename_prefix": ("STRING", {"default": "ComfyUI"})},
            "hidden": {"prompt": "PROMPT", "extra_pnginfo": "EXTRA_PNGINFO"},
        }

    def save_images(
        self,
        images: Any,
        filename_prefix: str = "ComfyUI",
        prompt: Any = None,
        extra_pnginfo: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Write pictures [B, H, W, C] in 0..1; returns {ui: {images: [{filename, subfolder, type}]}}."""
        height, width = images[0].shape[:2]
        folder, name, counter, subfolder, _ = import_module("folder_paths").get_save_image_path(
            filename_prefix + self.prefix_append, self.output_dir, width, height
        )
        items = []
        for number, picture in enumerate(images):
            file = f"{name.replace('%batch_num%', str(number))}_{counter:05}_.png"
            _to_pil(picture).save(
                os.path.join(folder, file),
                pnginfo=_metadata(prompt, extra_pnginfo),
                compress_level=self.compress_level,
            )
            items.append({"filename": file, "subfolder": subfolder, "type": self.type})
            counter += 1
        return {"ui": {"images": items}}


class PreviewImage(SaveImage):
    """Write pictures into the folder of previews."""

    DESCRIPTION = "Shows the input images."

    def __init__(self) -> None:
        self.output_dir = import_module("folder_paths").get_temp_directory()
        self.type = "temp"
        self.prefix_append = "_temp_" + "".join(secrets.choice(_LETTERS) for _ in range(_SUFFIX_LETTERS))
        self.compress_level = 1

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        """Return the declared inputs."""
        return {
            "required": {"images": ("IMAGE",)},
            "hidden": {"prompt": "PROMPT", "extra_pnginfo": "EXTRA_PNGINFO"},
        }


class LoadImage:
    """Read a picture from the input folder, on a worker."""

    RETURN_TYPES: ClassVar[tuple[Any, ...]] = ("IMAGE", "MASK")
    FUNCTION = "load_image"
    CATEGORY = "image"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        """Return the declared inputs: the pictures that are there now."""
        paths = import_module("folder_paths")
        folder = paths.get_input_directory()
        files = [name for name in os.listdir(folder) if os.path.isfile(os.path.join(folder, name))]
        pictures = sorted(paths.filter_files_content_types(files, ["image"]))
        return {"required": {"image": (pictures, {"image_upload": True})}}

    def load_image(self, image: str) -> tuple[Any, ...]:
        """Return (pictures [B, H, W, 3], mask [B, H, W])."""
        return run_node("LoadImage", image=image)

    @classmethod
    def IS_CHANGED(cls, image: str) -> str:
        """Return the digest of the file."""
        path = import_module("folder_paths").get_annotated_filepath(image)
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    @classmethod
    def VALIDATE_INPUTS(cls, image: str) -> bool | str:
        """Tell whether the file is there."""
        there = import_module("folder_paths").exists_annotated_filepath(image)
        return True if there else f"Invalid image file: {image}"


def _to_pil(picture: Any) -> Image.Image:
    pixels = torch.as_tensor(picture).detach().cpu().float() * 255.0
    return Image.fromarray(pixels.clamp(0, 255).to(torch.uint8).squeeze().numpy())


def _metadata(prompt: Any, extra: Mapping[str, Any] | None) -> PngInfo | None:
    if import_module("comfy.cli_args").args.disable_metadata:
        return None
    info = PngInfo()
    if prompt is not None:
        info.add_text("prompt", json.dumps(prompt))
    for key, value in (extra or {}).items():
        info.add_text(key, json.dumps(value))
    return info
