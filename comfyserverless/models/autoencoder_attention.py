"""Run an autoencoder's attention on 1x1 convolutions, as its checkpoints store it.

diffusers computes the same sums as linear layers over flattened pixels. Convolutions keep the memory
layout of the features around them, and so the bits of ComfyUI's results.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn


class ConvolutionalAttention:
    """Attend over all pixels with one head; an attention processor for diffusers' AutoencoderKL."""

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        temb: Tensor | None = None,
    ) -> Tensor:
        """Return hidden_states [B, C, H, W] plus what attention adds; the input is unchanged.

        The other arguments are diffusers' calling convention; an autoencoder gives none that acts.
        """
        x = attn.group_norm(hidden_states)
        query, key, value = (_flatten(_convolve(layer, x)) for layer in (attn.to_q, attn.to_k, attn.to_v))
        mixed = F.scaled_dot_product_attention(query, key, value)
        mixed = mixed.transpose(2, 3).reshape(x.shape)
        return hidden_states + _convolve(attn.to_out[0], mixed)


def _convolve(layer: nn.Linear, x: Tensor) -> Tensor:
    return F.conv2d(x, layer.weight[:, :, None, None], layer.bias)


def _flatten(x: Tensor) -> Tensor:
    """Turn [B, C, H, W] into [B, 1, H * W, C], contiguous."""
    batch, channels, height, width = x.shape
    return x.reshape(batch, 1, channels, height * width).transpose(2, 3).contiguous()
