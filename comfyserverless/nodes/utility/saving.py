"""Save animations, images with more bits, and texts; load what was saved."""

from __future__ import annotations

import json
import math

from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult, StepProgress
from comfyserverless.nodes.saving import save_files
from comfyserverless.nodes.specs import choice, number, socket, switch, text, whole
from comfyserverless.nodes.taking import Inputs, shape_of, take_tensor
from comfyserverless.nodes.uploads import upload_check, upload_token
from comfyserverless.nodes.utility.growing import choosing, dynamic
from comfyserverless.nodes.utility.values import take_text

_MODULE = "comfy_extras.nodes_images"
_HIDDEN = {"prompt": ["PROMPT"], "extra_pnginfo": ["EXTRA_PNGINFO"]}
_COMPRESSION = 4
_WEBP_EFFORTS = {"default": 4, "fastest": 0, "slowest": 6}


async def _load_output(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    loaded = ctx.emit("image.load", file=ctx.find_input_file(inputs["image"]))
    return NodeResult((loaded.out("images"), loaded.out("mask")))


async def _save_webp(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return await _save_animation(
        ctx,
        inputs,
        "webp",
        is_lossless=inputs["lossless"],
        quality=inputs["quality"],
        effort=_WEBP_EFFORTS[inputs["method"]],
    )


async def _save_apng(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return await _save_animation(ctx, inputs, "png", compress_level=inputs["compress_level"])


async def _save_animation(
    ctx: LoweringContext, inputs: Inputs, extension: str, **settings: object
) -> NodeResult:
    images = take_tensor(inputs, "images")
    _, height, width, *_ = await shape_of(ctx, images)
    place = ctx.destination("output", inputs["filename_prefix"], width, height)
    function = "image.save_webp" if extension == "webp" else "image.save_apng"
    items = await save_files(
        ctx, function, place, extension, images=images, frames_per_s=inputs["fps"], **settings
    )
    return NodeResult(ui={"images": items, "animated": [True]})


async def _save_advanced(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    images = take_tensor(inputs, "images")
    _, height, width, *_ = await shape_of(ctx, images)
    place = ctx.destination("output", inputs["filename_prefix"], width, height)
    function = "image.save_deep" if inputs["format.bit_depth"] == "16-bit" else "image.save"
    items = await save_files(ctx, function, place, "png", images=images, compress_level=_COMPRESSION)
    return NodeResult((images,), ui={"images": items})


async def _send_images(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Send each image as a preview frame, losslessly."""
    images = take_tensor(inputs, "images")
    count, *_ = await shape_of(ctx, images)
    for index in range(count):
        sent = ctx.emit("image.encode", images=images, index=index, progress=StepProgress(index + 1, count))
        await ctx.result(sent.out("preview"))
    return NodeResult(ui={})


async def _save_text(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Save a text as it is; JSON with an indent, if it is JSON."""
    given = await take_text(ctx, inputs, "text")
    extension = inputs.get("format", "txt")
    place = ctx.destination("output", inputs.get("filename_prefix", "ComfyUI"))
    written = _indented(given) if extension == "json" else given
    items = await save_files(ctx, "text.save", place, extension, text=written)
    return NodeResult((given,), ui={"text": [given], "files": items})


def _indented(given: str) -> str:
    try:
        return json.dumps(json.loads(given), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return given


_PNG = (
    choice("bit_depth", ("8-bit", "16-bit"), default="8-bit"),
    choice("input_color_space", ("sRGB",), default="sRGB"),
)
_SAVED = (
    socket("images", "IMAGE"),
    text("filename_prefix", default="ComfyUI"),
    choosing("format", (("png", _PNG),)),
)

NODES = (
    NodeDeclaration(
        name="LoadImageOutput",
        display_name="Load Image (from Outputs)",
        category="image",
        experimental=True,
        lower=_load_output,
        inputs=(
            InputSpec(
                "image",
                "COMBO",
                {
                    "image_upload": True,
                    "image_folder": "output",
                    "remote": {
                        "route": "/internal/files/output",
                        "refresh_button": True,
                        "control_after_refresh": "first",
                    },
                },
            ),
        ),
        outputs=(OutputSpec("IMAGE"), OutputSpec("MASK")),
        check_inputs=upload_check("image", "image"),
        checked_inputs=frozenset({"image"}),
        is_changed=upload_token("image"),
    ),
    NodeDeclaration(
        name="SaveAnimatedWEBP",
        category="image/animation",
        python_module=_MODULE,
        output_node=True,
        lower=_save_webp,
        inputs=(
            socket("images", "IMAGE"),
            text("filename_prefix", default="ComfyUI", multiline=False),
            number("fps", 6.0, 0.01, 1000.0, step=0.01),
            switch("lossless", True),
            whole("quality", 80, 0, 100),
            choice("method", tuple(_WEBP_EFFORTS)),
        ),
        hidden=_HIDDEN,
    ),
    NodeDeclaration(
        name="SaveAnimatedPNG",
        category="image/animation",
        python_module=_MODULE,
        output_node=True,
        lower=_save_apng,
        inputs=(
            socket("images", "IMAGE"),
            text("filename_prefix", default="ComfyUI", multiline=False),
            number("fps", 6.0, 0.01, 1000.0, step=0.01),
            whole("compress_level", 4, 0, 9),
        ),
        hidden=_HIDDEN,
    ),
    NodeDeclaration(
        name="SaveImageAdvanced",
        display_name="Save Image (Advanced)",
        category="image",
        description="Save images in the output folder, with 8 or 16 bits per value.",
        python_module=_MODULE,
        output_node=True,
        lower=_save_advanced,
        inputs=_SAVED,
        dynamic_inputs=dynamic(_SAVED),
        outputs=(OutputSpec("IMAGE", "images"),),
        hidden=_HIDDEN,
    ),
    NodeDeclaration(
        name="SaveImageWebsocket",
        display_name="SaveImageWebsocket",
        category="api/image",
        python_module="custom_nodes.websocket_image_save",
        output_node=True,
        lower=_send_images,
        inputs=(socket("images", "IMAGE"),),
        is_changed=lambda catalog, values: math.nan,
    ),
    NodeDeclaration(
        name="SaveText",
        display_name="Save Text",
        category="utils",
        description="Save a text in the output folder.",
        python_module="comfy_extras.nodes_text",
        output_node=True,
        lower=_save_text,
        inputs=(
            InputSpec("text", "STRING", {"forceInput": True}),
            InputSpec("filename_prefix", "STRING", {"default": "ComfyUI", "multiline": False}, "optional"),
            InputSpec("format", ("txt", "md", "json"), {"default": "txt", "multiselect": False}, "optional"),
        ),
        outputs=(OutputSpec("STRING", "text"),),
        hidden=_HIDDEN,
    ),
)
"""The declarations of this module, in the order of the node menu."""
