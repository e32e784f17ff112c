"""Resize images and masks, and cut them to boxes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import Output, TensorRef
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.scaling import resolve_size
from comfyserverless.nodes.specs import MAX_RESOLUTION_PX, number, socket
from comfyserverless.nodes.taking import Inputs, shape_of, take_tensor
from comfyserverless.nodes.utility.growing import Option, choosing, dynamic, matched, matching
from comfyserverless.nodes.utility.values import resolved

_PIXELS_PER_MEGAPIXEL = 1024 * 1024
_IMAGE_AXES = 4
#: Width and height; the half of the list that is upright, the square, and the other half turned.
_UPRIGHT = (
    (672, 1568),
    (688, 1504),
    (720, 1456),
    (752, 1392),
    (800, 1328),
    (832, 1248),
    (880, 1184),
    (944, 1104),
)
_KONTEXT_SIZES = (*_UPRIGHT, (1024, 1024), *((height, width) for width, height in reversed(_UPRIGHT)))
_DEFAULT_BOX = {"x": 0, "y": 0, "width": 512, "height": 512}


@dataclass(frozen=True)
class _Size:
    """What a picture is to become. crop: how it is cut if its ratio differs."""

    width: int
    height: int
    crop: str = "disabled"


async def _resize(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    picture = take_tensor(inputs, "input", "IMAGE or MASK")
    shape = await shape_of(ctx, picture)
    is_image = len(shape) == _IMAGE_AXES
    width, height = _width_height(shape)
    size = await _target(ctx, inputs, width, height)
    if (size.width, size.height) == (width, height):
        return NodeResult((picture,))
    given: dict[str, Any] = {
        "width": size.width,
        "height": size.height,
        "crop": size.crop,
        "method": inputs["scale_method"],
    }
    if is_image:
        return NodeResult((ctx.emit("image.scale", images=picture, **given).out("images"),))
    return NodeResult((ctx.emit("mask.scale", mask=picture, **given).out("mask"),))


async def _target(ctx: LoweringContext, inputs: Inputs, width: int, height: int) -> _Size:
    kind = inputs["resize_type"]
    given = {name: await resolved(ctx, inputs.get(f"resize_type.{name}")) for name in _SETTINGS}
    if kind == "scale dimensions":
        return _dimensions(given, width, height)
    if kind == "match size":
        like = take_tensor(inputs, "resize_type.match", "IMAGE or MASK")
        return _Size(*_width_height(await shape_of(ctx, like)), given["crop"])
    factor = _factor(kind, given, width, height)
    if not factor:
        return _Size(width, height)
    return _Size(max(1, round(width * factor)), max(1, round(height * factor)))


def _factor(kind: str, given: Mapping[str, Any], width: int, height: int) -> float:
    """Return what both sides are multiplied by; 0: the size stays."""
    sides = {
        "scale longer dimension": ("longer_size", max(width, height)),
        "scale shorter dimension": ("shorter_size", min(width, height)),
        "scale width": ("width", width),
        "scale height": ("height", height),
    }
    if kind in sides:
        name, side = sides[kind]
        return float(given[name] / side)
    if kind == "scale total pixels":
        return math.sqrt(given["megapixels"] * _PIXELS_PER_MEGAPIXEL / (width * height))
    return float(given["multiplier"])


def _dimensions(given: Mapping[str, Any], width: int, height: int) -> _Size:
    """Take the given sides; one that is 0 keeps the ratio, and both 0 the size."""
    if not given["width"] and not given["height"]:
        return _Size(width, height)
    wanted = resolve_size(given["width"], given["height"], (width, height), least=1)
    return _Size(*wanted, given["crop"])


def _width_height(shape: tuple[int, ...]) -> tuple[int, int]:
    height, width = shape[1:3] if len(shape) == _IMAGE_AXES else shape[-2:]
    return width, height


async def _crop(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    image: TensorRef | Output = take_tensor(inputs, "image")
    box = await resolved(ctx, inputs["crop_region"])
    _, height, width, *_ = await shape_of(ctx, image)
    if not isinstance(box, Mapping):
        raise PromptError(f"Input 'crop_region' takes a BOUNDING_BOX, but got {type(box).__name__}")
    x, y, across, down = (_side(box, name) for name in ("x", "y", "width", "height"))
    x, y = min(max(x, 0), width - 1), min(max(y, 0), height - 1)
    part: dict[str, Any] = {
        "x": x,
        "y": y,
        "width": max(1, min(across, width - x)),
        "height": max(1, min(down, height - y)),
    }
    return NodeResult((ctx.emit("image.crop", images=image, **part).out("images"),))


async def _fit_kontext(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Scale to the size, of those that FLUX.1 Kontext was trained with, whose ratio is nearest."""
    image = take_tensor(inputs, "image")
    _, height, width, *_ = await shape_of(ctx, image)
    across, down = min(_KONTEXT_SIZES, key=lambda size: abs(width / height - size[0] / size[1]))
    scaled = ctx.emit("image.scale", images=image, width=across, height=down, method="lanczos", crop="center")
    return NodeResult((scaled.out("images"),))


def _side(box: Mapping[str, Any], name: str) -> int:
    value = box.get(name)
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise PromptError(f"Input 'crop_region' needs a number {name!r}, but has {value!r:.100}")
    return int(value)


def _pixels(name: str) -> InputSpec:
    return InputSpec(name, "INT", {"default": 512, "min": 0, "max": MAX_RESOLUTION_PX, "step": 1})


_CROP = InputSpec("crop", ("disabled", "center"), {"default": "center", "multiselect": False})
_TYPES: tuple[Option, ...] = (
    ("scale by multiplier", (number("multiplier", 1.0, 0.01, 8.0, step=0.01),)),
    ("scale dimensions", (_pixels("width"), _pixels("height"), _CROP)),
    ("scale longer dimension", (_pixels("longer_size"),)),
    ("scale shorter dimension", (_pixels("shorter_size"),)),
    ("scale width", (_pixels("width"),)),
    ("scale height", (_pixels("height"),)),
    ("scale total pixels", (number("megapixels", 1.0, 0.01, 16.0, step=0.01),)),
    ("match size", (socket("match", "IMAGE,MASK"), _CROP)),
)
_SETTINGS = {spec.name for _, inputs in _TYPES for spec in inputs} - {"match"}
_METHODS = ("nearest-exact", "bilinear", "area", "bicubic", "lanczos")
_RESIZED = (
    matching("input", "input_type", "IMAGE,MASK"),
    choosing("resize_type", _TYPES),
    InputSpec("scale_method", _METHODS, {"default": "area", "multiselect": False}),
)

NODES = (
    NodeDeclaration(
        name="ResizeImageMaskNode",
        display_name="Resize Image/Mask",
        category="transform",
        python_module="comfy_extras.nodes_post_processing",
        lower=_resize,
        inputs=_RESIZED,
        dynamic_inputs=dynamic(_RESIZED),
        outputs=(matched("resized", "input_type"),),
    ),
    NodeDeclaration(
        name="ImageCropV2",
        display_name="Crop Image",
        category="image/transform",
        description="Cut a box out of an image; a box that reaches over its border is moved inside.",
        python_module="comfy_extras.nodes_images",
        lower=_crop,
        inputs=(
            socket("image", "IMAGE"),
            InputSpec("crop_region", "BOUNDING_BOX", {"default": _DEFAULT_BOX, "component": "ImageCrop"}),
        ),
        outputs=(OutputSpec("IMAGE"),),
    ),
    NodeDeclaration(
        name="FluxKontextImageScale",
        category="advanced/conditioning/flux",
        description="Scale an image to a size that suits FLUX.1 Kontext.",
        python_module="comfy_extras.nodes_flux",
        lower=_fit_kontext,
        inputs=(socket("image", "IMAGE"),),
        outputs=(OutputSpec("IMAGE"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
