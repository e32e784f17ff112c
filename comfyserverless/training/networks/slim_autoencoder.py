"""A slim autoencoder (factor 8, 4 channels) that learns in minutes, in the naming of Stable Diffusion 1.x.

Those autoencoders normalise in 32 groups. With few channels a group holds one or two of them, and normalising
it removes its mean: the colour of a flat picture. So the trunk near the colours is not normalised here, and
`widening` makes of it a network of 64 channels in the usual layout that computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NORM_GROUPS = 32
NORM_EPS = 1e-6
WIDE = 64
SLIM = 32
TINY = 2e-4
"""How small mirrored channels are: with a variance far below the norm's epsilon it only scales them."""


class Scale(nn.Module):
    """What the wide norm does to mirrored channels: a scaling by the inverse of (nearly) a constant."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Scale x: [n, c, h, w]."""
        x = x * torch.rsqrt(1 + TINY**2 / NORM_EPS * x.square().mean((2, 3), keepdim=True))
        return x * self.weight[:, None, None] + self.bias[:, None, None]


def _norm(channels: int, is_free: bool) -> nn.Module:
    return Scale(channels) if is_free else nn.GroupNorm(NORM_GROUPS, channels, eps=NORM_EPS)


def _conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2 if stride == 1 else 0)


class _Residual(nn.Module):
    def __init__(self, channels: int, is_free: bool = False) -> None:
        super().__init__()
        self.norm1, self.conv1 = _norm(channels, is_free), _conv(channels, channels)
        self.norm2, self.conv2 = _norm(channels, False), _conv(channels, channels)
        self.conv2.weight.data.mul_(0.3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.conv2(F.silu(self.norm2(h)))
        return x + h


class _Attention(nn.Module):
    def __init__(self, channels: int, is_free: bool) -> None:
        super().__init__()
        self.norm = _norm(channels, is_free)
        self.q, self.k, self.v = (_conv(channels, channels, 1) for _ in range(3))
        self.proj_out = _conv(channels, channels, 1)
        self.proj_out.weight.data.mul_(0.1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        q, k, v = (part(h).flatten(2).transpose(1, 2) for part in (self.q, self.k, self.v))
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        projected: Tensor = self.proj_out(h)
        return x + projected


class _Middle(nn.Module):
    def __init__(self, channels: int, is_free: bool) -> None:
        super().__init__()
        self.block_1 = _Residual(channels, is_free)
        self.attn_1 = _Attention(channels, is_free)
        self.block_2 = _Residual(channels, is_free)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.block_2(self.attn_1(self.block_1(x)))
        return y


class _Holder(nn.Module):
    """Holds one convolution under the name `conv`, as the layout asks."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv


class _Level(nn.Module):
    """One resolution; its change of size is a submodule only where there is one."""

    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.block = nn.ModuleList(blocks)


class Encoder(nn.Module):
    """Pictures [n, 3, h, w] to latents [n, 4, h/8, w/8]; 32 channels, mirrored from the last level on."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_in = _conv(3, SLIM)
        self.down = nn.ModuleList()
        for at in range(4):
            level = _Level([_Residual(SLIM, is_free=at == 3)])
            if at < 3:
                level.downsample = _Holder(_conv(SLIM, SLIM, stride=2))
            self.down.append(level)
        self.mid = _Middle(SLIM, is_free=True)
        self.norm_out, self.conv_out = _norm(SLIM, True), _conv(SLIM, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Encode; only the means of the eight outputs are used."""
        h = self.conv_in(x)
        for level in self.down:
            h = level.get_submodule("block.0")(h)
            if hasattr(level, "downsample"):
                h = level.get_submodule("downsample.conv")(F.pad(h, (0, 1, 0, 1)))
        y: Tensor = self.conv_out(F.silu(self.norm_out(self.mid(h))))
        return y[:, :4]


class Decoder(nn.Module):
    """Latents to pictures; 64 channels on the two coarse levels, 32 on the fine ones, mirrored on the last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_in = _conv(4, WIDE)
        self.mid = _Middle(WIDE, is_free=False)
        self.up = nn.ModuleList()
        for at in range(4):
            width = WIDE if at >= 2 else SLIM
            level = _Level([_Residual(width, is_free=at == 0) for _ in range(2)])
            if at:
                level.upsample = _Holder(_conv(width, WIDE if at == 3 else SLIM))
            self.up.append(level)
        self.norm_out, self.conv_out = _norm(SLIM, True), _conv(SLIM, 3)

    def forward(self, z: Tensor) -> Tensor:
        """Decode z: [n, 4, h, w] to [n, 3, 8h, 8w]."""
        h = self.mid(self.conv_in(z))
        for level in reversed(self.up):
            for block in level.get_submodule("block").children():
                h = block(h)
            if hasattr(level, "upsample"):
                h = level.get_submodule("upsample.conv")(F.interpolate(h, scale_factor=2.0, mode="nearest"))
        y: Tensor = self.conv_out(F.silu(self.norm_out(h)))
        return y


class SlimAutoencoder(nn.Module):
    """Both halves; see `widening.wide_state` for the file."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()
