"""Load, scale and save images."""

from __future__ import annotations

from comfyserverless.graph.declaration import InputChoices, InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.saving import preview_prefix, save_files
from comfyserverless.nodes.scaling import resolve_size
from comfyserverless.nodes.specs import MAX_RESOLUTION_PX, combo, socket, text, whole
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
    return NodeResult(ui={"images": items})


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
    ),
    NodeDeclaration(
        name="PreviewImage",
        display_name="Preview Image",
        category="image",
        lower=_preview_image,
        output_node=True,
        inputs=(socket("images", "IMAGE"),),
        hidden=_SAVE_HIDDEN,
    ),
    NodeDeclaration(
        name="ImageScale",
        display_name="Upscale Image",
        category="image/upscaling",
        lower=_scale_image,
        inputs=(
            socket("image", "IMAGE"),
            combo("upscale_method", ("nearest-exact", "bilinear", "area", "bicubic", "lanczos")),
            whole("width", 512, 0, MAX_RESOLUTION_PX, step=1),
            whole("height", 512, 0, MAX_RESOLUTION_PX, step=1),
            combo("crop", ("disabled", "center")),
        ),
        outputs=(OutputSpec("IMAGE"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
