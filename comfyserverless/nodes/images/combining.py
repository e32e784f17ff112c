"""Join, blend and composite images."""

from __future__ import annotations

from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.specs import MAX_RESOLUTION_PX, choice, number, socket, switch, whole
from comfyserverless.nodes.taking import Inputs, take_tensor

_COMPOSITING = "comfy_extras.nodes_compositing"
_BLEND_MODES = ("normal", "multiply", "screen", "overlay", "soft_light", "difference")
_OPERATORS = (
    "ADD CLEAR DARKEN DST DST_ATOP DST_IN DST_OUT DST_OVER LIGHTEN MULTIPLY OVERLAY SCREEN"
    " SRC SRC_ATOP SRC_IN SRC_OUT SRC_OVER XOR"
)


async def _batch(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    first, second = take_tensor(inputs, "image1"), take_tensor(inputs, "image2")
    return NodeResult((ctx.emit("image.batch", first=first, second=second).out("images"),))


async def _blend(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    blended = ctx.emit(
        "image.blend",
        first=take_tensor(inputs, "image1"),
        second=take_tensor(inputs, "image2"),
        factor=inputs["blend_factor"],
        mode=inputs["blend_mode"],
    )
    return NodeResult((blended.out("images"),))


async def _composite(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    composed = ctx.emit(
        "image.composite",
        destination=take_tensor(inputs, "destination"),
        source=take_tensor(inputs, "source"),
        mask=take_tensor(inputs, "mask", "MASK") if inputs.get("mask") is not None else None,
        **{name: inputs[name] for name in ("x", "y", "resize_source")},
    )
    return NodeResult((composed.out("images"),))


async def _porter_duff(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    composed = ctx.emit(
        "image.porter_duff",
        source=take_tensor(inputs, "source"),
        source_alpha=take_tensor(inputs, "source_alpha", "MASK"),
        destination=take_tensor(inputs, "destination"),
        destination_alpha=take_tensor(inputs, "destination_alpha", "MASK"),
        mode=inputs["mode"],
    )
    return NodeResult((composed.out("images"), composed.out("mask")))


async def _split_alpha(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    parts = ctx.emit("image.split_alpha", images=take_tensor(inputs, "image"))
    return NodeResult((parts.out("images"), parts.out("mask")))


async def _join_alpha(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    alpha = take_tensor(inputs, "alpha", "MASK")
    joined = ctx.emit("image.join_alpha", images=take_tensor(inputs, "image"), alpha=alpha)
    return NodeResult((joined.out("images"),))


async def _stitch(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    first = take_tensor(inputs, "image1")
    if inputs.get("image2") is None:
        return NodeResult((first,))
    stitched = ctx.emit(
        "image.stitch",
        first=first,
        second=take_tensor(inputs, "image2"),
        direction=inputs["direction"],
        matches_size=inputs["match_image_size"],
        spacing=inputs["spacing_width"],
        color=inputs["spacing_color"],
    )
    return NodeResult((stitched.out("images"),))


NODES = (
    NodeDeclaration(
        name="ImageBatch",
        display_name="Batch Images",
        category="image",
        deprecated=True,
        lower=_batch,
        inputs=(socket("image1", "IMAGE"), socket("image2", "IMAGE")),
        outputs=(OutputSpec("IMAGE"),),
    ),
    NodeDeclaration(
        name="ImageBlend",
        category="image/postprocessing",
        python_module="comfy_extras.nodes_post_processing",
        lower=_blend,
        inputs=(
            socket("image1", "IMAGE"),
            socket("image2", "IMAGE"),
            number("blend_factor", 0.5, 0.0, 1.0, step=0.01),
            choice("blend_mode", _BLEND_MODES),
        ),
        outputs=(OutputSpec("IMAGE"),),
    ),
    NodeDeclaration(
        name="ImageCompositeMasked",
        category="image",
        python_module="comfy_extras.nodes_mask",
        lower=_composite,
        inputs=(
            socket("destination", "IMAGE"),
            socket("source", "IMAGE"),
            whole("x", 0, 0, MAX_RESOLUTION_PX, step=1),
            whole("y", 0, 0, MAX_RESOLUTION_PX, step=1),
            switch("resize_source", False),
            InputSpec("mask", "MASK", section="optional"),
        ),
        outputs=(OutputSpec("IMAGE"),),
    ),
    NodeDeclaration(
        name="PorterDuffImageComposite",
        display_name="Porter-Duff Image Composite",
        category="mask/compositing",
        python_module=_COMPOSITING,
        lower=_porter_duff,
        inputs=(
            socket("source", "IMAGE"),
            socket("source_alpha", "MASK"),
            socket("destination", "IMAGE"),
            socket("destination_alpha", "MASK"),
            choice("mode", tuple(_OPERATORS.split()), default="DST"),
        ),
        outputs=(OutputSpec("IMAGE"), OutputSpec("MASK")),
    ),
    NodeDeclaration(
        name="SplitImageWithAlpha",
        display_name="Split Image with Alpha",
        category="mask/compositing",
        python_module=_COMPOSITING,
        lower=_split_alpha,
        inputs=(socket("image", "IMAGE"),),
        outputs=(OutputSpec("IMAGE"), OutputSpec("MASK")),
    ),
    NodeDeclaration(
        name="JoinImageWithAlpha",
        display_name="Join Image with Alpha",
        category="mask/compositing",
        python_module=_COMPOSITING,
        lower=_join_alpha,
        inputs=(socket("image", "IMAGE"), socket("alpha", "MASK")),
        outputs=(OutputSpec("IMAGE"),),
    ),
    NodeDeclaration(
        name="ImageStitch",
        display_name="Image Stitch",
        category="image/transform",
        python_module="comfy_extras.nodes_images",
        lower=_stitch,
        inputs=(
            socket("image1", "IMAGE"),
            choice("direction", ("right", "down", "left", "up"), default="right"),
            switch("match_image_size", True),
            whole("spacing_width", 0, 0, 1024, step=2),
            choice("spacing_color", ("white", "black", "red", "green", "blue"), default="white"),
            InputSpec("image2", "IMAGE", section="optional"),
        ),
        outputs=(OutputSpec("IMAGE"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
