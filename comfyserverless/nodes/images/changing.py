"""Filter, turn, scale and take apart images."""

from __future__ import annotations

from comfyserverless.core.errors import PromptError
from comfyserverless.graph.declaration import Lowering, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.specs import (
    MAX_RESOLUTION_PX,
    QUARTER_TURNS,
    choice,
    number,
    seed,
    socket,
    whole,
)
from comfyserverless.nodes.taking import Inputs, shape_of, take_tensor

_IMAGES = "comfy_extras.nodes_images"
_FILTERS = "comfy_extras.nodes_post_processing"
_MORPHOLOGY = "comfy_extras.nodes_morphology"
_IMAGE = (OutputSpec("IMAGE"),)
_PIXELS_PER_MEGAPIXEL = 1024 * 1024
_MAX_BATCH = 4096


def _changed(function: str, **ports: str) -> Lowering:
    """Return a lowering that gives the input `image` and these inputs, by port, to a function."""

    async def lower(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
        given = {port: inputs[name] for port, name in ports.items()}
        return NodeResult((ctx.emit(function, images=take_tensor(inputs, "image"), **given).out("images"),))

    return lower


async def _flip(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    flipped = ctx.emit("image.flip", images=take_tensor(inputs, "image"), axis=inputs["flip_method"][0])
    return NodeResult((flipped.out("images"),))


async def _rotate(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    turns = QUARTER_TURNS.index(inputs["rotation"])
    return NodeResult(
        (ctx.emit("image.rotate", images=take_tensor(inputs, "image"), turns=turns).out("images"),)
    )


async def _repeat(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    image, amount = take_tensor(inputs, "image"), inputs["amount"]
    count, *_ = await shape_of(ctx, image)
    if count * amount > _MAX_BATCH:
        raise PromptError(f"The batch would have {count * amount} images, at most {_MAX_BATCH} are possible")
    return NodeResult((ctx.emit("image.repeat", images=image, amount=amount).out("images"),))


async def _scale_to_side(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    _, height, width, *_ = await shape_of(ctx, take_tensor(inputs, "image"))
    largest = inputs["largest_size"]
    if height > width:
        size = round(width / height * largest), largest
    elif width > height:
        size = largest, round(height / width * largest)
    else:
        size = largest, largest
    return _scale(ctx, inputs, *size)


async def _scale_to_area(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    _, height, width, *_ = await shape_of(ctx, take_tensor(inputs, "image"))
    factor = (inputs["megapixels"] * _PIXELS_PER_MEGAPIXEL / (width * height)) ** 0.5
    step = inputs["resolution_steps"]
    size = (max(step, round(side * factor / step) * step) for side in (width, height))
    return _scale(ctx, inputs, *size)


def _scale(ctx: LoweringContext, inputs: Inputs, width: int, height: int) -> NodeResult:
    scaled = ctx.emit(
        "image.scale",
        images=take_tensor(inputs, "image"),
        width=width,
        height=height,
        method=inputs["upscale_method"],
        crop="disabled",
    )
    return NodeResult((scaled.out("images"),))


async def _color_mask(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    found = ctx.emit("image.color_mask", images=take_tensor(inputs, "image"), color=inputs["color"])
    return NodeResult((found.out("mask"),))


async def _to_yuv(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    parts = ctx.emit("image.to_yuv", images=take_tensor(inputs, "image"))
    return NodeResult(tuple(parts.out(name) for name in "yuv"))


async def _from_yuv(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    y, u, v = (take_tensor(inputs, name) for name in "YUV")
    return NodeResult((ctx.emit("image.from_yuv", y=y, u=u, v=v).out("images"),))


_METHODS = ("nearest-exact", "bilinear", "area", "bicubic", "lanczos")

NODES = (
    NodeDeclaration(
        name="ImageBlur",
        category="image/postprocessing",
        python_module=_FILTERS,
        lower=_changed("image.blur", radius="blur_radius", sigma="sigma"),
        inputs=(
            socket("image", "IMAGE"),
            whole("blur_radius", 1, 1, 31, step=1),
            number("sigma", 1.0, 0.1, 10.0, step=0.1),
        ),
        outputs=_IMAGE,
    ),
    NodeDeclaration(
        name="ImageSharpen",
        category="image/postprocessing",
        python_module=_FILTERS,
        lower=_changed("image.sharpen", radius="sharpen_radius", sigma="sigma", alpha="alpha"),
        inputs=(
            socket("image", "IMAGE"),
            whole("sharpen_radius", 1, 1, 31, step=1),
            number("sigma", 1.0, 0.1, 10.0, step=0.01),
            number("alpha", 1.0, 0.0, 5.0, step=0.01),
        ),
        outputs=_IMAGE,
    ),
    NodeDeclaration(
        name="ImageQuantize",
        category="image/postprocessing",
        python_module=_FILTERS,
        lower=_changed("image.quantize", colors="colors", dither="dither"),
        inputs=(
            socket("image", "IMAGE"),
            whole("colors", 256, 1, 256, step=1),
            choice("dither", ("none", "floyd-steinberg", "bayer-2", "bayer-4", "bayer-8", "bayer-16")),
        ),
        outputs=_IMAGE,
    ),
    NodeDeclaration(
        name="Morphology",
        display_name="ImageMorphology",
        category="image/postprocessing",
        python_module=_MORPHOLOGY,
        lower=_changed("image.morphology", operation="operation", size="kernel_size"),
        inputs=(
            socket("image", "IMAGE"),
            choice("operation", ("erode", "dilate", "open", "close", "gradient", "bottom_hat", "top_hat")),
            whole("kernel_size", 3, 3, 999, step=1),
        ),
        outputs=_IMAGE,
    ),
    NodeDeclaration(
        name="ImageAddNoise",
        category="image",
        python_module=_IMAGES,
        lower=_changed("image.noise", seed="seed", strength="strength"),
        inputs=(socket("image", "IMAGE"), seed("seed"), number("strength", 0.5, 0.0, 1.0, step=0.01)),
        outputs=_IMAGE,
    ),
    NodeDeclaration(
        name="ImageFlip",
        category="image/transform",
        python_module=_IMAGES,
        lower=_flip,
        inputs=(
            socket("image", "IMAGE"),
            choice("flip_method", ("x-axis: vertically", "y-axis: horizontally")),
        ),
        outputs=_IMAGE,
    ),
    NodeDeclaration(
        name="ImageRotate",
        category="image/transform",
        python_module=_IMAGES,
        lower=_rotate,
        inputs=(socket("image", "IMAGE"), choice("rotation", QUARTER_TURNS)),
        outputs=_IMAGE,
    ),
    NodeDeclaration(
        name="RepeatImageBatch",
        category="image/batch",
        python_module=_IMAGES,
        lower=_repeat,
        inputs=(socket("image", "IMAGE"), whole("amount", 1, 1, _MAX_BATCH)),
        outputs=_IMAGE,
    ),
    NodeDeclaration(
        name="ImageFromBatch",
        category="image/batch",
        python_module=_IMAGES,
        lower=_changed("image.slice", start="batch_index", length="length"),
        inputs=(
            socket("image", "IMAGE"),
            whole("batch_index", 0, 0, _MAX_BATCH - 1),
            whole("length", 1, 1, _MAX_BATCH),
        ),
        outputs=_IMAGE,
    ),
    NodeDeclaration(
        name="ImageScaleToMaxDimension",
        category="image/upscaling",
        python_module=_IMAGES,
        lower=_scale_to_side,
        inputs=(
            socket("image", "IMAGE"),
            choice("upscale_method", ("area", "lanczos", "bilinear", "nearest-exact", "bilinear", "bicubic")),
            whole("largest_size", 512, 0, MAX_RESOLUTION_PX, step=1),
        ),
        outputs=_IMAGE,
    ),
    NodeDeclaration(
        name="ImageScaleToTotalPixels",
        category="image/upscaling",
        python_module=_FILTERS,
        lower=_scale_to_area,
        inputs=(
            socket("image", "IMAGE"),
            choice("upscale_method", _METHODS),
            number("megapixels", 1.0, 0.01, 16.0, step=0.01),
            whole("resolution_steps", 1, 1, 256),
        ),
        outputs=_IMAGE,
    ),
    NodeDeclaration(
        name="ResizeAndPadImage",
        category="image/transform",
        python_module=_IMAGES,
        lower=_changed(
            "image.frame",
            width="target_width",
            height="target_height",
            color="padding_color",
            method="interpolation",
        ),
        inputs=(
            socket("image", "IMAGE"),
            whole("target_width", 512, 1, MAX_RESOLUTION_PX, step=1),
            whole("target_height", 512, 1, MAX_RESOLUTION_PX, step=1),
            choice("padding_color", ("white", "black")),
            choice("interpolation", ("area", "bicubic", "nearest-exact", "bilinear", "lanczos")),
        ),
        outputs=_IMAGE,
    ),
    NodeDeclaration(
        name="ImageColorToMask",
        category="mask",
        python_module="comfy_extras.nodes_mask",
        lower=_color_mask,
        inputs=(socket("image", "IMAGE"), whole("color", 0, 0, 0xFFFFFF, step=1, display="number")),
        outputs=(OutputSpec("MASK"),),
    ),
    NodeDeclaration(
        name="ImageRGBToYUV",
        category="image/batch",
        python_module=_MORPHOLOGY,
        lower=_to_yuv,
        inputs=(socket("image", "IMAGE"),),
        outputs=(OutputSpec("IMAGE", "Y"), OutputSpec("IMAGE", "U"), OutputSpec("IMAGE", "V")),
    ),
    NodeDeclaration(
        name="ImageYUVToRGB",
        category="image/batch",
        python_module=_MORPHOLOGY,
        lower=_from_yuv,
        inputs=(socket("Y", "IMAGE"), socket("U", "IMAGE"), socket("V", "IMAGE")),
        outputs=_IMAGE,
    ),
)
"""The declarations of this module, in the order of the node menu."""
