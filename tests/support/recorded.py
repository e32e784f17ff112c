"""Play recorded prompts with the nodes that exist.

A loaded picture stands in for EmptyImage, scaling for ImageInvert. The graphs keep their node ids, links and
caching behaviour, which is what the recordings are about.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from PIL import Image

SIDE_PX = 16
_SCALE = {"upscale_method": "nearest-exact", "width": SIDE_PX, "height": SIDE_PX, "crop": "disabled"}


def picture_name(colour: int) -> str:
    """Name the picture that stands in for an EmptyImage of a colour."""
    return f"colour_{colour:06x}.png"


def stand_in(prompt: Any, input_folder: Path) -> Any:
    """Return a recorded prompt with the nodes replaced; their pictures are written to the input folder."""
    if not isinstance(prompt, dict):
        return prompt
    replaced = copy.deepcopy(prompt)
    for node in replaced.values():
        inputs = node.get("inputs")
        if node.get("class_type") == "EmptyImage":
            node["class_type"] = "LoadImage"
            if inputs is not None:
                node["inputs"] = {"image": _write_picture(input_folder, inputs["color"])}
        elif node.get("class_type") == "ImageInvert":
            node["class_type"] = "ImageScale"
            if inputs is not None:
                node["inputs"] = {**inputs, **_SCALE}
    return replaced


def _write_picture(folder: Path, colour: int) -> str:
    name = picture_name(colour)
    folder.mkdir(parents=True, exist_ok=True)
    rgb = (colour >> 16 & 255, colour >> 8 & 255, colour & 255)
    if not (folder / name).exists():  # a rewritten file would be a new one for the cache
        Image.new("RGB", (SIDE_PX, SIDE_PX), rgb).save(folder / name)
    return name
