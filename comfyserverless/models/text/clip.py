"""Run CLIP text transformers (Radford et al. 2021) on weights held in their file's type, computing in float32.

Weights are a plain mapping from name to tensor in the Hugging Face naming without `text_model.`, so a LoRA
replaces single entries and shares the rest, and entries may be filled layer by layer while it runs. Heads are
64 wide in every released CLIP text model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

ClipWeights = Mapping[str, Tensor]

HEAD_WIDTH = 64
_NORM_EPS = 1e-5
_COMPUTE = torch.float32


@dataclass(frozen=True, slots=True)
class ClipConfig:
    """The shape of a text transformer; is_quick_gelu is OpenAI's sigmoid approximation (CLIP-L)."""

    width: int
    layers: int
    is_quick_gelu: bool

    @property
    def heads(self) -> int:
        """Number of attention heads."""
        return max(1, self.width // HEAD_WIDTH)


@dataclass(frozen=True, slots=True)
class ClipOutput:
    """hidden: [N, T, D] after the layer asked for, not normalised; last: [N, T, D] after the final norm;
    pooled: [N, P] the end mark's features, projected."""

    hidden: Tensor
    last: Tensor
    pooled: Tensor


def _ignore(_layer: int) -> None:
    """Do nothing: weights that are all there need no announcement."""


def clip_order(config: ClipConfig) -> tuple[tuple[str, ...], ...]:
    """Return the layers as they are loaded: the embeddings, the transformer's layers, the head."""
    layers = ((f"encoder.layers.{layer}",) for layer in range(config.layers))
    return ((), *layers, ("final_layer_norm", "text_projection"))


def run_clip(
    weights: ClipWeights,
    config: ClipConfig,
    embeds: Tensor,
    end_at: Tensor,
    stop: int,
    enter: Callable[[int], None] = _ignore,
) -> ClipOutput:
    """Run the transformer on token embeddings.

    embeds: [N, T, D] float32, without positions; end_at: [N] int64, place of each row's end mark; stop: the
    layer (counted from the end, -1 is the last) after which `hidden` is taken; enter: called with the number of
    each layer (see clip_order) but the first before its weights are read. Inputs are unchanged.
    """
    x = embeds + weights["embeddings.position_embedding.weight"][: embeds.shape[1]].to(_COMPUTE)
    mask = torch.full(
        (x.shape[1], x.shape[1]), -torch.finfo(x.dtype).max, dtype=x.dtype, device=x.device
    ).triu_(1)
    hidden = x
    for layer in range(config.layers):
        enter(layer + 1)
        x = _run_layer(weights, config, f"encoder.layers.{layer}.", x, mask)
        if layer == config.layers + stop:
            hidden = x
    enter(config.layers + 1)
    last = normalize(weights, x)
    pooled = last[torch.arange(last.shape[0], device=last.device), end_at]
    if "text_projection.weight" in weights:
        pooled = F.linear(pooled, weights["text_projection.weight"].to(_COMPUTE))
    return ClipOutput(hidden, last, pooled)


def normalize(weights: ClipWeights, x: Tensor) -> Tensor:
    """Apply the model's final layer norm to x: [N, T, D]."""
    return _norm(weights, "final_layer_norm", x)


def embed_tokens(weights: ClipWeights, ids: Tensor) -> Tensor:
    """Return the float32 embeddings [N, T, D] of token ids [N, T]."""
    return F.embedding(ids, weights["embeddings.token_embedding.weight"]).to(_COMPUTE)


def _run_layer(weights: ClipWeights, config: ClipConfig, prefix: str, x: Tensor, mask: Tensor) -> Tensor:
    x = x + _attend(
        weights, config.heads, prefix + "self_attn.", _norm(weights, prefix + "layer_norm1", x), mask
    )
    h = _linear(weights, prefix + "mlp.fc1", _norm(weights, prefix + "layer_norm2", x))
    h = h * torch.sigmoid(1.702 * h) if config.is_quick_gelu else F.gelu(h)
    return x + _linear(weights, prefix + "mlp.fc2", h)


def _attend(weights: ClipWeights, heads: int, prefix: str, x: Tensor, mask: Tensor) -> Tensor:
    count, tokens, width = x.shape
    q, k, v = (
        _linear(weights, f"{prefix}{name}_proj", x).view(count, tokens, heads, width // heads).transpose(1, 2)
        for name in "qkv"
    )
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return _linear(weights, prefix + "out_proj", out.transpose(1, 2).reshape(count, tokens, width))


def _linear(weights: ClipWeights, name: str, x: Tensor) -> Tensor:
    return F.linear(x, weights[name + ".weight"].to(_COMPUTE), weights[name + ".bias"].to(_COMPUTE))


def _norm(weights: ClipWeights, name: str, x: Tensor) -> Tensor:
    weight, bias = weights[name + ".weight"].to(_COMPUTE), weights[name + ".bias"].to(_COMPUTE)
    return F.layer_norm(x, (x.shape[-1],), weight, bias, _NORM_EPS)
