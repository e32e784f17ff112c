"""Widen the slim autoencoder to 64 channels and 32 norm groups without changing what it computes.

A slim channel h becomes two: twins (h, h) where the norm shall act, since one group then holds one slim
channel twice; mirrored (h, -h) * TINY where it shall not, since the group's mean is then zero and its
variance lies below the epsilon.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from comfyserverless.training.networks.slim_autoencoder import (
    NORM_EPS,
    SLIM,
    TINY,
    WIDE,
    Scale,
    SlimAutoencoder,
)

LATENT_SCALE = 0.18215
_LATENT_CHANNELS = 4
_LATENT_STD = 0.03
"""How far a picture's latent is drawn from its mean, in units of its own spread."""

State = dict[str, Tensor]

_FREE_PARTS = {
    "encoder.": ("down.3", "mid", "norm_out", "conv_out"),
    "decoder.": ("up.0", "norm_out", "conv_out"),
}
_INTO_FREE = {"encoder.": "down.2.downsample.conv", "decoder.": "up.1.upsample.conv"}
"""Convolutions that write the first mirrored trunk."""
_INSIDE_RESIDUAL = ("conv1", "q", "k", "v")
_BACK_TO_TRUNK = ("conv2", "proj_out")


def wide_state(slim: SlimAutoencoder) -> State:
    """Return the tensors of the wide autoencoder, named as below `first_stage_model.` in a checkpoint."""
    state = _widen(slim.encoder, "encoder.") | _widen(slim.decoder, "decoder.")
    weight, bias = state["encoder.conv_out.weight"], state["encoder.conv_out.bias"]
    weight[_LATENT_CHANNELS:], bias[_LATENT_CHANNELS:] = 0, 2 * math.log(_LATENT_STD)
    to_quantized = torch.ones(2 * _LATENT_CHANNELS)
    to_quantized[:_LATENT_CHANNELS] /= LATENT_SCALE
    shift = torch.zeros(2 * _LATENT_CHANNELS)
    shift[_LATENT_CHANNELS:] = -2 * math.log(LATENT_SCALE)
    state["quant_conv.weight"] = torch.diag(to_quantized)[:, :, None, None]
    state["quant_conv.bias"] = shift
    state["post_quant_conv.weight"] = torch.eye(_LATENT_CHANNELS)[:, :, None, None] * LATENT_SCALE
    state["post_quant_conv.bias"] = torch.zeros(_LATENT_CHANNELS)
    return state


def _widen(half: nn.Module, prefix: str) -> State:
    state: State = {}
    for name, module in half.named_modules():
        if isinstance(module, Scale | nn.GroupNorm | nn.Conv2d):
            weight, bias = _wide_layer(name, module, prefix)
            state[f"{prefix}{name}.weight"] = weight.detach().clone()
            state[f"{prefix}{name}.bias"] = bias.detach().clone()
    return state


def _wide_layer(name: str, module: Scale | nn.GroupNorm | nn.Conv2d, prefix: str) -> tuple[Tensor, Tensor]:
    if isinstance(module, Scale):
        gain = math.sqrt(NORM_EPS) / TINY
        return (module.weight * gain).repeat_interleave(2), module.bias.repeat_interleave(2)
    if isinstance(module, nn.GroupNorm):
        copies = WIDE // module.num_channels
        return module.weight.repeat_interleave(copies), module.bias.repeat_interleave(copies)
    return _wide_convolution(name, module, prefix)


def _wide_convolution(name: str, conv: nn.Conv2d, prefix: str) -> tuple[Tensor, Tensor]:
    leaf = name.rsplit(".", 1)[-1]
    is_free = name.startswith(_FREE_PARTS[prefix])
    writes_trunk = (is_free and leaf in _BACK_TO_TRUNK) or name == _INTO_FREE[prefix]
    spread = _spread(conv.out_channels, writes_trunk) if leaf != "conv_out" else torch.eye(conv.out_channels)
    if leaf in ("q", "k") and conv.out_channels == SLIM:
        spread = spread * 2**-0.25  # attention over twice the width, at the same temperature
    reads_first = is_free and (leaf in _INSIDE_RESIDUAL or leaf == "conv_out")
    gather = _gather(conv.in_channels, reads_first)
    assert conv.bias is not None
    return torch.einsum("ab,bcyx,cd->adyx", spread, conv.weight, gather), spread @ conv.bias


def _spread(channels: int, writes_trunk: bool) -> Tensor:
    """Return the matrix from slim outputs to wide ones."""
    if channels != SLIM:
        return torch.eye(channels) * (TINY if writes_trunk else 1.0)
    pair = torch.tensor([1.0, -1.0]) * TINY if writes_trunk else torch.ones(2)
    return (torch.eye(SLIM)[:, None, :] * pair[None, :, None]).reshape(WIDE, SLIM)


def _gather(channels: int, reads_first: bool) -> Tensor:
    """Return the matrix from wide inputs to slim ones; mirrored norms give the copies (w h + b, b - w h)."""
    if channels != SLIM:
        return torch.eye(channels)
    pair = torch.tensor([1.0, 0.0]) if reads_first else torch.full((2,), 0.5)
    return (torch.eye(SLIM)[:, :, None] * pair).reshape(SLIM, WIDE)
