"""Make, load, change and combine masks; a MASK is a tensor [B, H, W], 1 where masked."""

from __future__ import annotations

from comfyserverless.graph.declaration import InputChoices, InputSpec, Lowering, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.specs import MAX_RESOLUTION_PX, combo, number, socket, switch, whole
from comfyserverless.nodes.taking import Inputs, take_tensor
from comfyserverless.nodes.uploads import upload_check, upload_token

_MODULE = "comfy_extras.nodes_mask"


def _masked(function: str, *settings: str, result: str = "mask") -> Lowering:
    """Return a lowering that gives the input `mask` and these settings to a function."""

    async def lower(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
        mask = take_tensor(inputs, "mask", "MASK")
        made = ctx.emit(function, mask=mask, **{name: inputs[name] for name in settings})
        return NodeResult((made.out(result),))

    return lower


async def _load_mask(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    file = ctx.find_input_file(inputs["image"])
    return NodeResult((ctx.emit("image.load_mask", file=file, channel=inputs["channel"]).out("mask"),))


async def _solid_mask(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    made = ctx.emit("mask.solid", value=inputs["value"], width=inputs["width"], height=inputs["height"])
    return NodeResult((made.out("mask"),))


async def _take_channel(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    image = take_tensor(inputs, "image")
    return NodeResult((ctx.emit("image.to_mask", images=image, channel=inputs["channel"]).out("mask"),))


async def _composite_masks(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    composed = ctx.emit(
        "mask.composite",
        destination=take_tensor(inputs, "destination", "MASK"),
        source=take_tensor(inputs, "source", "MASK"),
        **{name: inputs[name] for name in ("x", "y", "operation")},
    )
    return NodeResult((composed.out("mask"),))


def _length(name: str, default: int = 0, least: int = 0) -> InputSpec:
    return whole(name, default, least, MAX_RESOLUTION_PX, step=1)


NODES = (
    NodeDeclaration(
        name="LoadImageMask",
        display_name="Load Image (as Mask)",
        category="mask",
        lower=_load_mask,
        inputs=(
            InputSpec("image", InputChoices("image"), {"image_upload": True}),
            combo("channel", ("alpha", "red", "green", "blue")),
        ),
        outputs=(OutputSpec("MASK"),),
        check_inputs=upload_check("image", "image"),
        checked_inputs=frozenset({"image"}),
        is_changed=upload_token("image"),
    ),
    NodeDeclaration(
        name="MaskToImage",
        display_name="Convert Mask to Image",
        category="mask",
        python_module=_MODULE,
        lower=_masked("mask.to_image", result="images"),
        inputs=(socket("mask", "MASK"),),
        outputs=(OutputSpec("IMAGE"),),
    ),
    NodeDeclaration(
        name="ImageToMask",
        display_name="Convert Image to Mask",
        category="mask",
        python_module=_MODULE,
        lower=_take_channel,
        inputs=(
            socket("image", "IMAGE"),
            InputSpec("channel", ("red", "green", "blue", "alpha"), {"multiselect": False}),
        ),
        outputs=(OutputSpec("MASK"),),
    ),
    NodeDeclaration(
        name="SolidMask",
        category="mask",
        python_module=_MODULE,
        lower=_solid_mask,
        inputs=(
            number("value", 1.0, 0.0, 1.0, step=0.01),
            _length("width", 512, least=1),
            _length("height", 512, least=1),
        ),
        outputs=(OutputSpec("MASK"),),
    ),
    NodeDeclaration(
        name="InvertMask",
        category="mask",
        python_module=_MODULE,
        lower=_masked("mask.invert"),
        inputs=(socket("mask", "MASK"),),
        outputs=(OutputSpec("MASK"),),
    ),
    NodeDeclaration(
        name="CropMask",
        category="mask",
        python_module=_MODULE,
        lower=_masked("mask.crop", "x", "y", "width", "height"),
        inputs=(
            socket("mask", "MASK"),
            _length("x"),
            _length("y"),
            _length("width", 512, least=1),
            _length("height", 512, least=1),
        ),
        outputs=(OutputSpec("MASK"),),
    ),
    NodeDeclaration(
        name="ThresholdMask",
        category="mask",
        python_module=_MODULE,
        lower=_masked("mask.threshold", "value"),
        inputs=(socket("mask", "MASK"), number("value", 0.5, 0.0, 1.0, step=0.01)),
        outputs=(OutputSpec("MASK"),),
    ),
    NodeDeclaration(
        name="MaskComposite",
        category="mask",
        python_module=_MODULE,
        lower=_composite_masks,
        inputs=(
            socket("destination", "MASK"),
            socket("source", "MASK"),
            _length("x"),
            _length("y"),
            InputSpec("operation", ("multiply", "add", "subtract", "and", "or", "xor"), {"multiselect": False}),
        ),
        outputs=(OutputSpec("MASK"),),
    ),
    NodeDeclaration(
        name="FeatherMask",
        category="mask",
        python_module=_MODULE,
        lower=_masked("mask.feather", "left", "top", "right", "bottom"),
        inputs=(
            socket("mask", "MASK"),
            _length("left"),
            _length("top"),
            _length("right"),
            _length("bottom"),
        ),
        outputs=(OutputSpec("MASK"),),
    ),
    NodeDeclaration(
        name="GrowMask",
        display_name="Grow Mask",
        category="mask",
        python_module=_MODULE,
        lower=_masked("mask.grow", "expand", "tapered_corners"),
        inputs=(
            socket("mask", "MASK"),
            _length("expand", least=-MAX_RESOLUTION_PX),
            switch("tapered_corners", True),
        ),
        outputs=(OutputSpec("MASK"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
