"""The two networks of TAESD (Bohan 2023, github.com/madebyollin/taesd), each one chain of modules.

Parameters have the names of the original files, which are places in the chain: `3.conv.0.weight`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_DOUBLINGS = 3
_BLOCKS = 3
_SPREAD = 3.0
"""Latents are squeezed smoothly into -3..3 before they are decoded."""


class _Squeeze(nn.Module):
    """Bring latents of any size into the range that the decoder was trained on."""

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, C, h, w] in -3..3."""
        return torch.tanh(x / _SPREAD) * _SPREAD


class _Block(nn.Module):
    """Three convolutions with a way around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            _convolution(width, width),
            nn.ReLU(),
            _convolution(width, width),
            nn.ReLU(),
            _convolution(width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, width, h, w] of the same."""
        return functional.relu(self.conv(x) + x)


def _convolution(inputs: int, outputs: int, *, stride: int = 1, has_bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1, stride=stride, bias=has_bias)


def _blocks(width: int, count: int = _BLOCKS) -> list[nn.Module]:
    return [_Block(width) for _ in range(count)]


def tiny_encoder(latent_channels: int, width: int) -> nn.Sequential:
    """Return the network from pictures [B, 3, h * 8, w * 8] in 0..1 to latents [B, C, h, w]."""
    parts = [_convolution(3, width), *_blocks(width, 1)]
    for _ in range(_DOUBLINGS):
        parts += [_convolution(width, width, stride=2, has_bias=False), *_blocks(width)]
    return nn.Sequential(*parts, _convolution(width, latent_channels))


def tiny_decoder(latent_channels: int, width: int) -> nn.Sequential:
    """Return the network from latents [B, C, h, w] to pictures [B, 3, h * 8, w * 8], mostly in 0..1."""
    parts = [_Squeeze(), _convolution(latent_channels, width), nn.ReLU()]
    for _ in range(_DOUBLINGS):
        parts += [*_blocks(width), nn.Upsample(scale_factor=2), _convolution(width, width, has_bias=False)]
    return nn.Sequential(*parts, *_blocks(width, 1), _convolution(width, 3))
