"""Encode prompts and edit conditionings; a CONDITIONING is a list of [tensor, options]."""

from __future__ import annotations

import msgspec

from comfyserverless.core.errors import PromptError
from comfyserverless.graph.declaration import NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.specs import socket, text, whole
from comfyserverless.nodes.taking import Inputs, take_clip, take_conditioning

#: Each entry is a model call per step; joining a conditioning with itself over and over doubles it.
MAX_ENTRIES = 256
#: More than the encoders take in the end, and few enough to be counted in seconds.
MAX_TEXT_CHARS = 1_000_000


def check_text(given: str) -> None:
    """Raise PromptError for a text that is too long to be a prompt."""
    if len(given) > MAX_TEXT_CHARS:
        raise PromptError(f"text has {len(given)} characters, at most {MAX_TEXT_CHARS} are possible")


async def _encode_text(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    check_text(inputs["text"])
    encoded = ctx.emit("text.encode", clip=take_clip(inputs), text=inputs["text"])
    return NodeResult(([[encoded.out("cond"), {"pooled_output": encoded.out("pooled")}]],))


async def _set_last_layer(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    clip = msgspec.structs.replace(take_clip(inputs), last_layer=inputs["stop_at_clip_layer"])
    return NodeResult((clip,))


async def _combine(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    first, second = take_conditioning(inputs, "conditioning_1"), take_conditioning(inputs, "conditioning_2")
    if (count := len(first) + len(second)) > MAX_ENTRIES:
        raise PromptError(f"The combined conditioning has {count} entries, at most {MAX_ENTRIES} are possible")
    return NodeResult((first + second,))


NODES = (
    NodeDeclaration(
        name="CLIPTextEncode",
        display_name="CLIP Text Encode (Prompt)",
        category="conditioning",
        lower=_encode_text,
        inputs=(text("text", multiline=True, dynamicPrompts=True), socket("clip", "CLIP")),
        outputs=(OutputSpec("CONDITIONING"),),
    ),
    NodeDeclaration(
        name="CLIPSetLastLayer",
        display_name="CLIP Set Last Layer",
        category="conditioning",
        lower=_set_last_layer,
        inputs=(socket("clip", "CLIP"), whole("stop_at_clip_layer", -1, -24, -1, step=1)),
        outputs=(OutputSpec("CLIP"),),
    ),
    NodeDeclaration(
        name="ConditioningCombine",
        display_name="Conditioning (Combine)",
        category="conditioning",
        lower=_combine,
        inputs=(socket("conditioning_1", "CONDITIONING"), socket("conditioning_2", "CONDITIONING")),
        outputs=(OutputSpec("CONDITIONING"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
