"""Search texts with regular expressions: on the CPU lane, where a pattern that never ends is given up."""

from __future__ import annotations

from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.specs import choice
from comfyserverless.nodes.taking import Inputs
from comfyserverless.nodes.utility.texts import lines
from comfyserverless.nodes.utility.values import MAX_TEXT_CHARS, take_text, take_whole

_MODULE = "comfy_extras.nodes_string"
_FLAGS = {"case_insensitive": True, "multiline": False, "dotall": False}


async def _match(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    found = ctx.emit("text.match", **await _subject(ctx, inputs))
    return NodeResult((await ctx.result(found.out("matches")),))


async def _extract(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    group = await take_whole(ctx, inputs, "group_index")
    found = ctx.emit(
        "text.extract", mode=inputs["mode"], group=group, limit=MAX_TEXT_CHARS, **await _subject(ctx, inputs)
    )
    return NodeResult((await ctx.result(found.out("text")),))


async def _replace(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    replaced = ctx.emit(
        "text.substitute",
        replacement=await take_text(ctx, inputs, "replace"),
        count=await take_whole(ctx, inputs, "count", 0),
        limit=MAX_TEXT_CHARS,
        **await _subject(ctx, inputs),
    )
    return NodeResult((await ctx.result(replaced.out("text")),))


async def _subject(ctx: LoweringContext, inputs: Inputs) -> dict[str, Value]:
    flags = [name for name, default in _FLAGS.items() if inputs.get(name, default)]
    pattern = await take_text(ctx, inputs, "regex_pattern")
    return {"text": await take_text(ctx, inputs, "string"), "pattern": pattern, "flags": flags}


_SUBJECT = (lines("string"), lines("regex_pattern"))
_SWITCHES = tuple(InputSpec(name, "BOOLEAN", {"default": default}) for name, default in _FLAGS.items())
_OPTIONAL_SWITCHES = tuple(
    InputSpec(name, "BOOLEAN", {"default": default}, "optional") for name, default in _FLAGS.items()
)

NODES = (
    NodeDeclaration(
        name="RegexMatch",
        display_name="Regex Match",
        category="utils/string",
        python_module=_MODULE,
        lower=_match,
        inputs=(*_SUBJECT, *_SWITCHES),
        outputs=(OutputSpec("BOOLEAN", "matches"),),
    ),
    NodeDeclaration(
        name="RegexExtract",
        display_name="Regex Extract",
        category="utils/string",
        python_module=_MODULE,
        lower=_extract,
        inputs=(
            *_SUBJECT,
            choice("mode", ("First Match", "All Matches", "First Group", "All Groups")),
            *_SWITCHES,
            InputSpec("group_index", "INT", {"default": 1, "min": 0, "max": 100}),
        ),
        outputs=(OutputSpec("STRING"),),
    ),
    NodeDeclaration(
        name="RegexReplace",
        display_name="Regex Replace",
        category="utils/string",
        description="Replace what a regular expression finds.",
        python_module=_MODULE,
        lower=_replace,
        inputs=(
            *_SUBJECT,
            lines("replace"),
            *_OPTIONAL_SWITCHES,
            InputSpec("count", "INT", {"default": 0, "min": 0, "max": 100}, "optional"),
        ),
        outputs=(OutputSpec("STRING"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
