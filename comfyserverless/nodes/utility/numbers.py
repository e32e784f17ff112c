"""Calculate with plain numbers."""

from __future__ import annotations

import math

from comfyserverless.core.errors import PromptError
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.specs import number, text
from comfyserverless.nodes.taking import Inputs
from comfyserverless.nodes.utility.expression import evaluate
from comfyserverless.nodes.utility.growing import LETTERS, dynamic, growing, grown
from comfyserverless.nodes.utility.values import resolved, take_number, take_text, take_whole

_MODULE = "comfy_extras.nodes_math"
_LEAST, _MOST = -(2**63), 2**64 - 1  # seeds use all bits without a sign
_MEGAPIXEL = 1024 * 1024
_DEFAULT_MULTIPLE_PX = 8
_RATIOS = {
    "1:1 (Square)": (1, 1),
    "2:3 (Portrait Photo)": (2, 3),
    "3:2 (Photo)": (3, 2),
    "3:4 (Portrait Standard)": (3, 4),
    "4:3 (Standard)": (4, 3),
    "9:16 (Portrait Widescreen)": (9, 16),
    "16:9 (Widescreen)": (16, 9),
    "21:9 (Ultrawide)": (21, 9),
}


async def _calculate(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    names = {}
    for name in grown(inputs, "values"):
        if inputs[f"values.{name}"] is not None:
            names[name] = await take_number(ctx, inputs, f"values.{name}")
    result = evaluate(await take_text(ctx, inputs, "expression"), names)
    return NodeResult((_as_float(result), _as_int(result), bool(result)))


async def _convert(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    value = await resolved(ctx, inputs.get("value"))
    if isinstance(value, str):
        value = _read(value)
    if not isinstance(value, int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise PromptError(f"Input 'value' takes a finite number, or a text with one, but got {value!r:.200}")
    return NodeResult((_as_float(value), _as_int(value)))


def _read(text: str) -> int | float:
    digits = text.strip()
    try:
        return int(digits)
    except ValueError:
        pass
    try:
        return float(digits)
    except ValueError as exc:
        raise PromptError(f"The text {text!r:.200} is no number") from exc


def _as_int(value: int | float) -> int:
    """Cut off what is behind the point. Raises PromptError for what no other node could take."""
    number = int(value)
    if not _LEAST <= number <= _MOST:
        raise PromptError("The number is too large for an INT of 64 bits")
    return number


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError as exc:
        raise PromptError("The number is too large for a FLOAT") from exc


async def _select_resolution(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    across, down = _RATIOS[inputs["aspect_ratio"]]
    multiple = await take_whole(ctx, inputs, "multiple", _DEFAULT_MULTIPLE_PX)
    scale = math.sqrt(await take_number(ctx, inputs, "megapixels") * _MEGAPIXEL / (across * down))
    return NodeResult(tuple(max(1, round(side * scale / multiple)) * multiple for side in (across, down)))


_FORMULA = (
    text("expression", default="a + b", multiline=True),
    growing("values", InputSpec("value", "FLOAT,INT,BOOLEAN"), (1, len(LETTERS)), LETTERS),
)

NODES = (
    NodeDeclaration(
        name="ComfyMathExpression",
        display_name="Math Expression",
        category="math",
        python_module=_MODULE,
        lower=_calculate,
        inputs=_FORMULA,
        dynamic_inputs=dynamic(_FORMULA),
        outputs=(OutputSpec("FLOAT"), OutputSpec("INT"), OutputSpec("BOOLEAN", "BOOL")),
    ),
    NodeDeclaration(
        name="ComfyNumberConvert",
        display_name="Convert Number",
        category="math",
        python_module="comfy_extras.nodes_number_convert",
        lower=_convert,
        inputs=(InputSpec("value", "INT,FLOAT,STRING,BOOLEAN"),),
        outputs=(OutputSpec("FLOAT"), OutputSpec("INT")),
    ),
    NodeDeclaration(
        name="ResolutionSelector",
        display_name="Resolution Selector",
        category="utils",
        description=(
            "Choose an aspect ratio and how many megapixels; gives a width and a height for empty latents."
        ),
        python_module="comfy_extras.nodes_resolution",
        lower=_select_resolution,
        inputs=(
            InputSpec(
                "aspect_ratio",
                tuple(_RATIOS),
                {"default": "1:1 (Square)", "multiselect": False, "tooltip": "Width to height."},
            ),
            number("megapixels", 1.0, 0.1, 16.0, step=0.1, tooltip="1.0 is as many pixels as 1024 x 1024 has."),
            InputSpec(
                "multiple",
                "INT",
                {
                    "default": _DEFAULT_MULTIPLE_PX,
                    "min": 8,
                    "max": 128,
                    "step": 4,
                    "tooltip": "Sides are multiples.",
                },
                "optional",
            ),
            InputSpec(
                "preview",
                "RESOLUTION_PREVIEW",
                {
                    "ratio_widget": "aspect_ratio",
                    "megapixels_widget": "megapixels",
                    "multiple_widget": "multiple",
                },
                "optional",
            ),
        ),
        outputs=(OutputSpec("INT", "width", "Pixels."), OutputSpec("INT", "height", "Pixels.")),
    ),
)
"""The declarations of this module, in the order of the node menu."""
