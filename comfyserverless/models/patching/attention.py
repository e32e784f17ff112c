"""Run a transformer block of a U-Net with the patches of its attentions.

Patches change what an attention is computed from (attn1_patch, attn2_patch), replace the attention itself
(patches_replace), or change what it gives. attn1 looks at the picture, attn2 at the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional

from comfyserverless.models.patching.calling import call

Options = MutableMapping[str, Any]
"""ComfyUI's `transformer_options`."""

FACTORS = "attention_factors"
"""Key of transformer_options: by `attn1` or `attn2` what queries, keys, values and results are multiplied
by."""

_NOT_FOR_BLOCKS = ("patches", "patches_replace")


def run_block(block: Any, x: Tensor, context: Tensor, options: Options) -> Tensor:
    """Return what a BasicTransformerBlock gives for x [N, cells, width] and context [N, T, D].

    options: with `block` and `block_index` of this block; patches get all of it but the patches, and n_heads,
    dim_head.
    """
    extra = {key: value for key, value in options.items() if key not in _NOT_FOR_BLOCKS}
    extra["n_heads"] = block.attn1.heads
    extra["dim_head"] = block.attn1.inner_dim // block.attn1.heads
    extra["attn_precision"] = None
    patches: Mapping[str, Sequence[Callable[..., Any]]] = options.get("patches", {})
    x = _attend("attn1", block.attn1, block.norm1(x), None, options, extra) + x
    for patch in patches.get("middle_patch", ()):
        x = call("middle_patch", patch, x, extra)
    x = _attend("attn2", block.attn2, block.norm2(x), context, options, extra) + x
    fed: Tensor = block.ff(block.norm3(x)) + x
    return fed


def _attend(
    kind: str, attention: Any, x: Tensor, context: Tensor | None, options: Options, extra: dict[str, Any]
) -> Tensor:
    patches = options.get("patches", {})
    value: Tensor | None = None
    given = patches.get(f"{kind}_patch", ())
    if given:
        context = x if context is None else context
        value = context
        for patch in given:
            x, context, value = call(f"{kind}_patch", patch, x, context, value, extra)
    replacement, factors = _replacement(kind, options), options.get(FACTORS, {}).get(kind)
    if replacement is None and factors is None and not given:
        result = attention(x, encoder_hidden_states=context)
    else:
        context = x if context is None else context
        result = _by_parts(
            attention, (x, context, context if value is None else value), factors, (replacement, extra)
        )
    for patch in patches.get(f"{kind}_output_patch", ()):
        result = call(f"{kind}_output_patch", patch, result, extra)
    return result  # type: ignore[no-any-return]


def _by_parts(
    attention: Any,
    sources: tuple[Tensor, Tensor, Tensor],
    factors: Sequence[float] | None,
    replaced: tuple[Callable[..., Any] | None, dict[str, Any]],
) -> Tensor:
    """Project, attend and project back; factors: of queries, keys, values and the result."""
    layers = (attention.to_q, attention.to_k, attention.to_v)
    parts = [layer(source) for layer, source in zip(layers, sources, strict=True)]
    if factors is not None:
        parts = [part * factor for part, factor in zip(parts, factors, strict=False)]
    replacement, extra = replaced
    if replacement is None:
        query, key, value = parts
        attended = attend(query, key, value, attention.heads)
    else:
        attended = call("patches_replace", replacement, *parts, extra)
    result: Tensor = attention.to_out[1](attention.to_out[0](attended))
    return result if factors is None else result * factors[-1]


def attend(query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    """Return scaled dot-product attention; all [N, tokens, heads * width], as the result."""
    count, _, width = query.shape
    q, k, v = (
        part.view(count, -1, heads, part.shape[-1] // heads).transpose(1, 2) for part in (query, key, value)
    )
    attended = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.0, is_causal=False)
    return attended.transpose(1, 2).reshape(count, -1, width)


def _replacement(kind: str, options: Options) -> Callable[..., Any] | None:
    """Return the function in place of an attention: of this very transformer block, or of all of its block."""
    replacements = options.get("patches_replace", {}).get(kind)
    if not replacements:
        return None
    block = options["block"]
    exact = (block[0], block[1], options["block_index"])
    found: Callable[..., Any] | None = replacements.get(exact, replacements.get(block))
    return found
