"""Load, make, change and save images."""

from __future__ import annotations

from comfyserverless.graph.declaration import InputChoices, InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.saving import preview_prefix, save_files
from comfyserverless.nodes.scaling import resolve_size
from comfyserverless.nodes.specs import MAX_RESOLUTION_PX, combo, number, socket, text, whole
from comfyserverless.nodes.taking import Inputs, shape_of, take_tensor
from comfyserverless.nodes.uploads import upload_check, upload_token

_SAVE_HIDDEN = {"prompt": "PROMPT", "extra_pnginfo": "EXTRA_PNGINFO"}
_SAVED_COMPRESSION = 4
_PREVIEW_COMPRESSION = 1


async def _load_image(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    loaded = ctx.emit("image.load", file=ctx.find_input_file(inputs["image"]))
    return NodeResult((loaded.out("images"), loaded.out("mask")))


async def _save_image(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return await _save(ctx, inputs, "output", inputs["filename_prefix"], _SAVED_COMPRESSION)


async def _preview_image(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return await _save(ctx, inputs, "temp", preview_prefix(ctx.hidden.unique_id), _PREVIEW_COMPRESSION)


async def _save(
    ctx: LoweringContext, inputs: Inputs, kind: str, prefix: str, compress_level: int
) -> NodeResult:
    images = take_tensor(inputs, "images")
    _, height, width, *_ = await shape_of(ctx, images)
    place = ctx.destination(kind, prefix, width, height)
    items = await save_files(ctx, "image.save", place, "png", images=images, compress_level=compress_level)
    return NodeResult((images,), ui={"images": items})


async def _scale_image(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    image, width, height = take_tensor(inputs, "image"), inputs["width"], inputs["height"]
    if width == 0 and height == 0:
        return NodeResult((image,))
    if width == 0 or height == 0:
        _, from_height, from_width, *_ = await shape_of(ctx, image)
        width, height = resolve_size(width, height, (from_width, from_height), least=1)
    scaled = ctx.emit(
        "image.scale",
        images=image,
        width=width,
        height=height,
        method=inputs["upscale_method"],
        crop=inputs["crop"],
    )
    return NodeResult((scaled.out("images"),))


async def _scale_image_by(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    image, factor = take_tensor(inputs, "image"), inputs["scale_by"]
    _, height, width, *_ = await shape_of(ctx, image)
    scaled = ctx.emit(
        "image.scale",
        images=image,
        width=round(width * factor),
        height=round(height * factor),
        method=inputs["upscale_method"],
        crop="disabled",
    )
    return NodeResult((scaled.out("images"),))


async def _empty_image(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    sizes = {name: inputs[name] for name in ("width", "height", "batch_size")}
    return NodeResult((ctx.emit("image.empty", color=inputs["color"], **sizes).out("images"),))


async def _invert_image(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return NodeResult((ctx.emit("image.invert", images=take_tensor(inputs, "image")).out("images"),))


async def _crop_image(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    part = {name: inputs[name] for name in ("x", "y", "width", "height")}
    return NodeResult((ctx.emit("image.crop", images=take_tensor(inputs, "image"), **part).out("images"),))


async def _find_edges(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    thresholds = {name: inputs[name] for name in ("low_threshold", "high_threshold")}
    edges = ctx.emit("image.canny", images=take_tensor(inputs, "image"), **thresholds)
    return NodeResult((edges.out("images"),))


_METHODS = combo("upscale_method", ("nearest-exact", "bilinear", "area", "bicubic", "lanczos"))

NODES = (
    NodeDeclaration(
        name="LoadImage",
        display_name="Load Image",
        category="image",
        lower=_load_image,
        inputs=(InputSpec("image", InputChoices("image"), {"image_upload": True}),),
        outputs=(OutputSpec("IMAGE"), OutputSpec("MASK")),
        check_inputs=upload_check("image", "image"),
        checked_inputs=frozenset({"image"}),
        is_changed=upload_token("image"),
    ),
    NodeDeclaration(
        name="SaveImage",
        display_name="Save Image",
        category="image",
        lower=_save_image,
        output_node=True,
        inputs=(socket("images", "IMAGE"), text("filename_prefix", default="ComfyUI")),
        hidden=_SAVE_HIDDEN,
        outputs=(OutputSpec("IMAGE", "images"),),
    ),
    NodeDeclaration(
        name="PreviewImage",
        display_name="Preview Image",
        category="image",
        lower=_preview_image,
        output_node=True,
        inputs=(socket("images", "IMAGE"),),
        hidden=_SAVE_HIDDEN,
        outputs=(OutputSpec("IMAGE", "images"),),
    ),
    NodeDeclaration(
        name="ImageScale",
        display_name="Upscale Image",
        category="image/upscaling",
        lower=_scale_image,
        inputs=(
            socket("image", "IMAGE"),
            _METHODS,
            whole("width", 512, 0, MAX_RESOLUTION_PX, step=1),
            whole("height", 512, 0, MAX_RESOLUTION_PX, step=1),
            combo("crop", ("disabled", "center")),
        ),
        outputs=(OutputSpec("IMAGE"),),
    ),
    NodeDeclaration(
        name="ImageScaleBy",
        display_name="Upscale Image By",
        category="image/upscaling",
        lower=_scale_image_by,
        inputs=(socket("image", "IMAGE"), _METHODS, number("scale_by", 1.0, 0.01, 8.0, step=0.01)),
        outputs=(OutputSpec("IMAGE"),),
    ),
    NodeDeclaration(
        name="ImageInvert",
        display_name="Invert Image",
        category="image",
        lower=_invert_image,
        inputs=(socket("image", "IMAGE"),),
        outputs=(OutputSpec("IMAGE"),),
    ),
    NodeDeclaration(
        name="EmptyImage",
        display_name="EmptyImage",
        category="image",
        lower=_empty_image,
        inputs=(
            whole("width", 512, 1, MAX_RESOLUTION_PX, step=1),
            whole("height", 512, 1, MAX_RESOLUTION_PX, step=1),
            whole("batch_size", 1, 1, 4096),
            whole("color", 0, 0, 0xFFFFFF, step=1, display="color"),
        ),
        outputs=(OutputSpec("IMAGE"),),
    ),
    NodeDeclaration(
        name="ImageCrop",
        display_name="Image Crop",
        category="image/transform",
        python_module="comfy_extras.nodes_images",
        lower=_crop_image,
        inputs=(
            socket("image", "IMAGE"),
            whole("width", 512, 1, MAX_RESOLUTION_PX, step=1),
            whole("height", 512, 1, MAX_RESOLUTION_PX, step=1),
            whole("x", 0, 0, MAX_RESOLUTION_PX, step=1),
            whole("y", 0, 0, MAX_RESOLUTION_PX, step=1),
        ),
        outputs=(OutputSpec("IMAGE"),),
    ),
    NodeDeclaration(
        name="Canny",
        category="image/preprocessors",
        python_module="comfy_extras.nodes_canny",
        lower=_find_edges,
        inputs=(
            socket("image", "IMAGE"),
            number("low_threshold", 0.4, 0.01, 0.99, step=0.01),
            number("high_threshold", 0.8, 0.01, 0.99, step=0.01),
        ),
        outputs=(OutputSpec("IMAGE"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
