"""Emit the invocations of a plan of tiles: the tiles of a pass at once, and then what puts them together.

A tile is an invocation of its own, so that a large picture takes its turns among the work of others, and idle
workers take tiles of it. One pass follows the other, so that the tiles of one only are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfyserverless.core.values import Output, Value
from comfyserverless.graph.lowering import Emitted, LoweringContext


async def emit_tiles(
    ctx: LoweringContext, plan: Mapping[str, Any], function: str, meaning: str, **inputs: Value
) -> Output:
    """Emit `function` for each part of a plan (see functions.tiles.planning); return the mean of all passes.

    inputs: of the function, beside `item` and `boxes`; meaning: as tiles.mean takes it.
    """
    total: Output | None = None
    for each in plan["passes"]:
        if total is not None:
            await ctx.result(total)
        blended = _emit_pass(ctx, each, plan["scale"], total, function, inputs)
        ctx.keep_only(blended)
        total = blended.out("total")
    return ctx.emit("tiles.mean", total=total, passes=len(plan["passes"]), meaning=meaning).out("mean")


def _emit_pass(
    ctx: LoweringContext,
    each: Mapping[str, Any],
    scale: Value,
    previous: Output | None,
    function: str,
    inputs: Mapping[str, Value],
) -> Emitted:
    parts = each["parts"]
    tiles = [ctx.emit(function, **inputs, **part).out("tiles") for part in parts]
    return ctx.emit(
        "tiles.blend",
        tiles=tiles,
        parts=parts,
        size=each["size"],
        overlap=each["overlap"],
        scale=scale,
        previous=previous,
    )
