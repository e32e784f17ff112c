"""Attend as `comfy.ldm.modules.attention` does: heads side by side in the last dimension, or apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def optimized_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    heads: int,
    mask: Tensor | None = None,
    attn_precision: Any = None,
    skip_reshape: bool = False,
    skip_output_reshape: bool = False,
    **more: Any,
) -> Tensor:
    """Return attention of q over k and v: [B, T, heads * D], or with skip_reshape [B, heads, T, D] each.

    mask: added to the scores if it has numbers, else where it is true is looked at; [T, S], [B, T, S] or with
    heads.
    """
    if not skip_reshape:
        q, k, v = (_split(each, heads) for each in (q, k, v))
    if mask is not None:
        mask = mask.unsqueeze(0) if mask.ndim == 2 else mask
        mask = mask.unsqueeze(1) if mask.ndim == 3 else mask
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return out if skip_output_reshape else out.transpose(1, 2).flatten(2)


def _split(value: Tensor, heads: int) -> Tensor:
    batch, length, width = value.shape
    return value.reshape(batch, length, heads, width // heads).transpose(1, 2)


def optimized_attention_for_device(
    device: Any, mask: bool = False, small_input: bool = False
) -> Callable[..., Tensor]:
    """Return how to attend on a device."""
    return optimized_attention


def attention_basic(*args: Any, **kwargs: Any) -> Tensor:
    """Attend."""
    return optimized_attention(*args, **kwargs)


def exists(value: Any) -> bool:
    """Tell whether something is not None."""
    return value is not None


def default(value: Any, fallback: Any) -> Any:
    """Return a value, or the fallback (what it returns) if it is None."""
    if value is not None:
        return value
    return fallback() if callable(fallback) else fallback


class GEGLU(nn.Module):
    """Gated linear unit with GELU (Shazeer 2020)."""

    def __init__(
        self, dim_in: int, dim_out: int, dtype: Any = None, device: Any = None, operations: Any = nn
    ) -> None:
        super().__init__()
        self.proj = operations.Linear(dim_in, dim_out * 2, dtype=dtype, device=device)

    def forward(self, x: Tensor) -> Tensor:
        """Return x times its gate."""
        value, gate = self.proj(x).chunk(2, dim=-1)
        gated: Tensor = value * functional.gelu(gate)
        return gated


class FeedForward(nn.Module):
    """The feed-forward part of a transformer block."""

    def __init__(
        self, dim: int, dim_out: int | None = None, mult: int = 4, glu: bool = False, dropout: float = 0.0,
        dtype: Any = None, device: Any = None, operations: Any = nn,
    ) -> None:  # fmt: skip
        super().__init__()
        inner = dim * mult
        first: nn.Module = (
            GEGLU(dim, inner, dtype, device, operations)
            if glu
            else nn.Sequential(operations.Linear(dim, inner, dtype=dtype, device=device), nn.GELU())
        )
        last = operations.Linear(inner, default(dim_out, dim), dtype=dtype, device=device)
        self.net = nn.Sequential(first, nn.Dropout(dropout), last)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the layers give."""
        out: Tensor = self.net(x)
        return out


class CrossAttention(nn.Module):
    """Attention of x over a context, of x itself without one."""

    def __init__(
        self, query_dim: int, context_dim: int | None = None, heads: int = 8, dim_head: int = 64,
        dropout: float = 0.0, attn_precision: Any = None, dtype: Any = None, device: Any = None, operations: Any
        = nn,
    ) -> None:  # fmt: skip
        super().__init__()
        inner, context = dim_head * heads, default(context_dim, query_dim)
        self.heads, self.dim_head, self.attn_precision = heads, dim_head, attn_precision
        self.to_q = operations.Linear(query_dim, inner, bias=False, dtype=dtype, device=device)
        self.to_k = operations.Linear(context, inner, bias=False, dtype=dtype, device=device)
        self.to_v = operations.Linear(context, inner, bias=False, dtype=dtype, device=device)
        out = operations.Linear(inner, query_dim, dtype=dtype, device=device)
        self.to_out = nn.Sequential(out, nn.Dropout(dropout))

    def forward(
        self, x: Tensor, context: Any = None, value: Any = None, mask: Any = None, **more: Any
    ) -> Tensor:
        """Return attention, projected."""
        context = default(context, x)
        values = self.to_v(context if value is None else value)
        out: Tensor = self.to_out(
            optimized_attention(self.to_q(x), self.to_k(context), values, self.heads, mask)
        )
        return out


@torch.no_grad()
def zero_module(module: nn.Module) -> nn.Module:
    """Set all parameters to zero."""
    for parameter in module.parameters():
        parameter.zero_()
    return module
