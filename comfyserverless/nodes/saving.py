"""Save what a worker writes: resolve the destination, let it write part files there, give them their names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from comfyserverless.core.values import Value
from comfyserverless.graph.lowering import Destination, LoweringContext

_SUFFIX_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def metadata(ctx: LoweringContext) -> dict[str, str]:
    """Return what files carry so that the page can open them again: JSON texts by key; empty if turned off."""
    if not ctx.embeds_metadata:
        return {}
    extra: Mapping[str, Any] = ctx.hidden.extra_pnginfo or {}
    return {key: json.dumps(value) for key, value in {"prompt": ctx.hidden.prompt, **extra}.items()}


async def save_files(
    ctx: LoweringContext, function: str, place: Destination, extension: str, **inputs: Value
) -> list[Any]:
    """Run a saving function into a destination and publish its files; return ComfyUI's file items.

    inputs: of the function; with `metadata` among them in place of the prompt's.
    """
    saved = ctx.emit(
        function,
        directory=place.directory,
        stem=ctx.staging_stem(),
        **{"metadata": metadata(ctx), **inputs},
    )
    staged = await ctx.result(saved.out("files"))
    return list(await ctx.publish(place, staged, extension))


def preview_prefix(node_id: str) -> str:
    """Return the filename prefix of a preview node: five letters that differ from node to node."""
    digest = blake2b(node_id.encode("utf-8", "surrogatepass"), digest_size=5).digest()
    return "ComfyUI_temp_" + "".join(_SUFFIX_LETTERS[byte % len(_SUFFIX_LETTERS)] for byte in digest)
