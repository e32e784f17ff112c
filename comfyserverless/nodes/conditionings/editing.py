"""Mix conditionings, limit them to areas, masks and times, and give text models texts of their own.

Where an option is set, it is set on every entry of the conditioning.
"""

from __future__ import annotations

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.conditioning import check_text
from comfyserverless.nodes.specs import MAX_RESOLUTION_PX, combo, number, socket, text, whole
from comfyserverless.nodes.taking import Conditioning, Inputs, take_clip, take_conditioning, take_tensor

#: Pixels per latent cell that ComfyUI's sizes are meant in, whatever the family.
_CELL_PX = 8
_POOLED = "pooled_output"
_SIZES = ("width", "height", "crop_w", "crop_h", "target_width", "target_height")


def _with_options(conditioning: Conditioning, **options: Value) -> NodeResult:
    """Return a conditioning with options set on each of its entries."""
    return NodeResult(([[cond, {**given, **options}] for cond, given in conditioning],))


async def _average(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Mix the first entry of one conditioning into every entry of another."""
    origin, origin_options = _first(take_conditioning(inputs, "conditioning_from"))
    mixed = []
    for cond, options in take_conditioning(inputs, "conditioning_to"):
        made = ctx.emit(
            "cond.average",
            to=cond,
            origin=origin,
            to_pooled=options.get(_POOLED),
            origin_pooled=origin_options.get(_POOLED),
            strength=inputs["conditioning_to_strength"],
        )
        mixed.append([made.out("cond"), {**options, _POOLED: made.out("pooled")}])
    return NodeResult((mixed,))


async def _concat(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    origin, _ = _first(take_conditioning(inputs, "conditioning_from"))
    return NodeResult(
        (
            [
                [ctx.emit("cond.concat", to=cond, origin=origin).out("cond"), options]
                for cond, options in take_conditioning(inputs, "conditioning_to")
            ],
        )
    )


def _first(conditioning: Conditioning) -> tuple[Value, dict[str, Value]]:
    if not conditioning:
        raise PromptError("conditioning_from is empty: it has no entry to take anything from")
    cond, options = conditioning[0]
    return cond, options


async def _zero_out(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    silenced = []
    for cond, options in take_conditioning(inputs, "conditioning"):
        made = ctx.emit("cond.zero", cond=cond, pooled=options.get(_POOLED))
        silenced.append([made.out("cond"), {**options, _POOLED: made.out("pooled")}])
    return NodeResult((silenced,))


async def _set_area(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    area = [inputs[name] // _CELL_PX for name in ("height", "width", "y", "x")]
    conditioning = take_conditioning(inputs, "conditioning")
    return _with_options(conditioning, area=area, strength=inputs["strength"], set_area_to_bounds=False)


async def _set_area_share(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    area = ["percentage", *(inputs[name] for name in ("height", "width", "y", "x"))]
    conditioning = take_conditioning(inputs, "conditioning")
    return _with_options(conditioning, area=area, strength=inputs["strength"], set_area_to_bounds=False)


async def _set_strength(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return _with_options(take_conditioning(inputs, "conditioning"), strength=inputs["strength"])


async def _set_mask(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return _with_options(
        take_conditioning(inputs, "conditioning"),
        mask=take_tensor(inputs, "mask", "MASK"),
        mask_strength=inputs["strength"],
        set_area_to_bounds=inputs["set_cond_area"] != "default",
    )


async def _set_times(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    conditioning = take_conditioning(inputs, "conditioning")
    return _with_options(conditioning, start_percent=inputs["start"], end_percent=inputs["end"])


async def _encode_sdxl(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Give the two text models of SDXL a text each, and the network sizes to believe in."""
    texts = {"g": inputs["text_g"], "l": inputs["text_l"]}
    for given in texts.values():
        check_text(given)
    encoded = ctx.emit("text.encode", clip=take_clip(inputs), text=texts)
    options = {_POOLED: encoded.out("pooled"), **{name: inputs[name] for name in _SIZES}}
    return NodeResult(([[encoded.out("cond"), options]],))


async def _encode_refiner(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Give a refiner a text, the size to believe in, and how beautiful the picture should be."""
    check_text(inputs["text"])
    encoded = ctx.emit("text.encode", clip=take_clip(inputs), text=inputs["text"])
    options = {
        _POOLED: encoded.out("pooled"),
        "aesthetic_score": inputs["ascore"],
        "width": inputs["width"],
        "height": inputs["height"],
    }
    return NodeResult(([[encoded.out("cond"), options]],))


async def _encode_for_controlnets(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Let the ControlNets of a conditioning see another text than the model."""
    check_text(inputs["text"])
    encoded = ctx.emit("text.encode", clip=take_clip(inputs), text=inputs["text"])
    return _with_options(
        take_conditioning(inputs, "conditioning"),
        cross_attn_controlnet=encoded.out("cond"),
        pooled_output_controlnet=encoded.out("pooled"),
    )


_CONDITIONING = (OutputSpec("CONDITIONING"),)
_STRENGTH = number("strength", 1.0, 0.0, 10.0, step=0.01)


def _cells(name: str, least: int) -> InputSpec:
    return whole(name, least, least, MAX_RESOLUTION_PX, step=_CELL_PX)


def _share(name: str, default: float) -> InputSpec:
    return number(name, default, 0, 1.0, step=0.01)


def _size(name: str, default: int) -> InputSpec:
    return whole(name, default, 0, MAX_RESOLUTION_PX)


NODES = (
    NodeDeclaration(
        name="ConditioningAverage",
        display_name="ConditioningAverage",
        category="conditioning",
        lower=_average,
        inputs=(
            socket("conditioning_to", "CONDITIONING"),
            socket("conditioning_from", "CONDITIONING"),
            number("conditioning_to_strength", 1.0, 0.0, 1.0, step=0.01),
        ),
        outputs=_CONDITIONING,
    ),
    NodeDeclaration(
        name="ConditioningConcat",
        display_name="Conditioning (Concat)",
        category="conditioning",
        lower=_concat,
        inputs=(socket("conditioning_to", "CONDITIONING"), socket("conditioning_from", "CONDITIONING")),
        outputs=_CONDITIONING,
    ),
    NodeDeclaration(
        name="ConditioningSetArea",
        display_name="Conditioning (Set Area)",
        category="conditioning",
        lower=_set_area,
        inputs=(
            socket("conditioning", "CONDITIONING"),
            _cells("width", 64),
            _cells("height", 64),
            _cells("x", 0),
            _cells("y", 0),
            _STRENGTH,
        ),
        outputs=_CONDITIONING,
    ),
    NodeDeclaration(
        name="ConditioningSetAreaPercentage",
        display_name="Conditioning (Set Area with Percentage)",
        category="conditioning",
        lower=_set_area_share,
        inputs=(
            socket("conditioning", "CONDITIONING"),
            _share("width", 1.0),
            _share("height", 1.0),
            _share("x", 0),
            _share("y", 0),
            _STRENGTH,
        ),
        outputs=_CONDITIONING,
    ),
    NodeDeclaration(
        name="ConditioningSetAreaStrength",
        display_name="ConditioningSetAreaStrength",
        category="conditioning",
        lower=_set_strength,
        inputs=(socket("conditioning", "CONDITIONING"), _STRENGTH),
        outputs=_CONDITIONING,
    ),
    NodeDeclaration(
        name="ConditioningSetMask",
        display_name="Conditioning (Set Mask)",
        category="conditioning",
        lower=_set_mask,
        inputs=(
            socket("conditioning", "CONDITIONING"),
            socket("mask", "MASK"),
            _STRENGTH,
            combo("set_cond_area", ("default", "mask bounds")),
        ),
        outputs=_CONDITIONING,
    ),
    NodeDeclaration(
        name="ConditioningZeroOut",
        display_name="ConditioningZeroOut",
        category="advanced/conditioning",
        lower=_zero_out,
        inputs=(socket("conditioning", "CONDITIONING"),),
        outputs=_CONDITIONING,
    ),
    NodeDeclaration(
        name="ConditioningSetTimestepRange",
        display_name="ConditioningSetTimestepRange",
        category="advanced/conditioning",
        lower=_set_times,
        inputs=(
            socket("conditioning", "CONDITIONING"),
            number("start", 0.0, 0.0, 1.0, step=0.001),
            number("end", 1.0, 0.0, 1.0, step=0.001),
        ),
        outputs=_CONDITIONING,
    ),
    NodeDeclaration(
        name="CLIPTextEncodeSDXL",
        category="advanced/conditioning",
        python_module="comfy_extras.nodes_clip_sdxl",
        lower=_encode_sdxl,
        inputs=(
            socket("clip", "CLIP"),
            _size("width", 1024),
            _size("height", 1024),
            _size("crop_w", 0),
            _size("crop_h", 0),
            _size("target_width", 1024),
            _size("target_height", 1024),
            text("text_g", multiline=True, dynamicPrompts=True),
            text("text_l", multiline=True, dynamicPrompts=True),
        ),
        outputs=_CONDITIONING,
    ),
    NodeDeclaration(
        name="CLIPTextEncodeSDXLRefiner",
        category="advanced/conditioning",
        python_module="comfy_extras.nodes_clip_sdxl",
        lower=_encode_refiner,
        inputs=(
            number("ascore", 6.0, 0.0, 1000.0, step=0.01),
            _size("width", 1024),
            _size("height", 1024),
            text("text", multiline=True, dynamicPrompts=True),
            socket("clip", "CLIP"),
        ),
        outputs=_CONDITIONING,
    ),
    NodeDeclaration(
        name="CLIPTextEncodeControlnet",
        category="_for_testing/conditioning",
        python_module="comfy_extras.nodes_cond",
        experimental=True,
        lower=_encode_for_controlnets,
        inputs=(
            socket("clip", "CLIP"),
            socket("conditioning", "CONDITIONING"),
            text("text", multiline=True, dynamicPrompts=True),
        ),
        outputs=_CONDITIONING,
    ),
)
"""The declarations of this module, in the order of the node menu."""
