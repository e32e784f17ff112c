"""Encode tokens that a pack has cut, weighted or joined itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import TensorRef
from comfyserverless.graph.declaration import NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.specs import socket
from comfyserverless.nodes.taking import Inputs, take_clip

_MAX_CHUNKS = 2000


async def _encode_tokens(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    tokens = inputs.get("tokens")
    if not _are_tokens(tokens):
        raise PromptError("tokens are a dict from kind of text model to chunks of [id or vector, weight]")
    encoded = ctx.emit("text.encode_tokens", clip=take_clip(inputs), tokens=tokens)
    return NodeResult((encoded.out("cond"), encoded.out("pooled")))


def _are_tokens(tokens: Any) -> bool:
    return isinstance(tokens, Mapping) and all(
        isinstance(chunks, list) and len(chunks) <= _MAX_CHUNKS and all(_is_chunk(chunk) for chunk in chunks)
        for chunks in tokens.values()
    )


def _is_chunk(chunk: Any) -> bool:
    return isinstance(chunk, list) and all(
        isinstance(token, list)
        and len(token) == 2
        and isinstance(token[0], int | TensorRef)
        and isinstance(token[1], int | float)
        for token in chunk
    )


NODES = (
    NodeDeclaration(
        name="HostEncodeTokens",
        lower=_encode_tokens,
        inputs=(socket("clip", "CLIP"), socket("tokens", "TOKENS")),
        outputs=(OutputSpec("TENSOR"), OutputSpec("TENSOR")),
    ),
)
"""The declarations of this module."""
