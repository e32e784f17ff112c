"""A node that lets a picture through when a file is there: a test decides how long its prompt runs."""

from __future__ import annotations

import os
import time
from typing import Any

import comfy.model_management


class Gate:
    """Give the picture back once the file is there, or end when the prompt is interrupted."""

    CATEGORY = "gates"
    FUNCTION = "run"
    RETURN_TYPES = ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"image": ("IMAGE",), "gate": ("STRING", {})}}

    def run(self, image: Any, gate: str) -> tuple[Any]:
        while not os.path.exists(gate):
            comfy.model_management.throw_exception_if_processing_interrupted()
            time.sleep(0.05)
        return (image,)


NODE_CLASS_MAPPINGS = {"Gate": Gate}
