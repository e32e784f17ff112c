"""Write plain values into a graph."""

from __future__ import annotations

from comfyserverless.core.errors import PromptError
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.specs import whole
from comfyserverless.nodes.taking import Inputs
from comfyserverless.nodes.utility.values import take_text

_MODULE = "comfy_extras.nodes_primitive"
_LARGEST = 2**63 - 1
_MAX_BOX_PX = 8192


async def _value(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return NodeResult((inputs["value"],))


async def _seed(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return NodeResult((inputs["seed"],))


async def _box(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return NodeResult(({name: inputs[name] for name in ("x", "y", "width", "height")},))


async def _color(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Read #RRGGBB, or #RRGGBBAA."""
    color = await take_text(ctx, inputs, "color")
    digits = color.removeprefix("#")
    try:
        if len(digits) not in (6, 8) or digits == color:
            raise ValueError(color)
        rgb, alpha = int(digits[:6], 16), int(digits[6:] or "ff", 16)
    except ValueError as exc:
        raise PromptError(f"Input 'color' takes a text like #RRGGBB, but got {color!r:.40}") from exc
    return NodeResult((rgb, color, alpha / 255))


def _primitive(name: str, kind: str, title: str, **options: object) -> NodeDeclaration:
    return NodeDeclaration(
        name=name,
        display_name=title,
        category="utils/primitive",
        python_module=_MODULE,
        lower=_value,
        inputs=(InputSpec("value", kind, options),),
        outputs=(OutputSpec(kind),),
    )


NODES = (
    _primitive("PrimitiveString", "STRING", "String", multiline=False),
    _primitive("PrimitiveStringMultiline", "STRING", "String (Multiline)", multiline=True),
    _primitive("PrimitiveInt", "INT", "Int", min=-_LARGEST, max=_LARGEST, control_after_generate=True),
    _primitive("PrimitiveFloat", "FLOAT", "Float", min=-_LARGEST, max=_LARGEST, step=0.1),
    _primitive("PrimitiveBoolean", "BOOLEAN", "Boolean"),
    NodeDeclaration(
        name="PrimitiveBoundingBox",
        display_name="Bounding Box",
        category="utils/primitive",
        python_module=_MODULE,
        lower=_box,
        inputs=(
            whole("x", 0, 0, _MAX_BOX_PX),
            whole("y", 0, 0, _MAX_BOX_PX),
            whole("width", 512, 1, _MAX_BOX_PX),
            whole("height", 512, 1, _MAX_BOX_PX),
        ),
        outputs=(OutputSpec("BOUNDING_BOX"),),
    ),
    NodeDeclaration(
        name="SeedNode",
        display_name="Seed",
        category="utils/primitive",
        python_module=_MODULE,
        lower=_seed,
        inputs=(whole("seed", 0, 0, _LARGEST, control_after_generate=True),),
        outputs=(OutputSpec("INT", "seed"),),
    ),
    NodeDeclaration(
        name="ColorToRGBInt",
        display_name="Color Picker",
        category="utils",
        description="A colour as a number, as a text, and how opaque it is.",
        python_module="comfy_extras.nodes_color",
        lower=_color,
        inputs=(InputSpec("color", "COLOR", {"default": "#ffffff"}),),
        outputs=(OutputSpec("INT", "rgb_int"), OutputSpec("COLOR", "hex"), OutputSpec("FLOAT", "alpha")),
    ),
)
"""The declarations of this module, in the order of the node menu."""
