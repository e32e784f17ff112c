"""The network of ESRGAN (Wang et al. 2018, arXiv 1809.00219): residual-in-residual dense blocks.

Real-ESRGAN (Wang et al. 2021, arXiv 2107.10833) runs it at a fraction of the picture's size for small factors:
squares of pixels become channels first.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

_SLOPE = 0.2
_RESIDUAL_SCALE = 0.2
_ALIGNED_PX = 4
_DENSE_CONVOLUTIONS = 5


@dataclass(frozen=True, slots=True)
class RrdbLayout:
    """The structure of one file.

    in_channels: of the first convolution; growth: channels that each convolution of a dense block adds;
    doublings: how often the network doubles the size; unshuffle: side of the squares of pixels that become
    channels, 1 for none.
    """

    in_channels: int
    out_channels: int
    width: int
    growth: int
    blocks: int
    doublings: int
    unshuffle: int

    @property
    def scale(self) -> int:
        """Return how many times larger pictures become, per side."""
        return int(2**self.doublings // self.unshuffle)


class _DenseBlock(nn.Module):
    """Five convolutions, each of which sees what all before it gave."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        for at in range(_DENSE_CONVOLUTIONS):
            out = width if at == _DENSE_CONVOLUTIONS - 1 else growth
            self.add_module(f"conv{at + 1}", nn.Conv2d(width + growth * at, out, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        """Return x, [B, width, H, W], plus a fraction of what the block makes of it."""
        *inner, last = self.children()
        seen = x
        for convolution in inner:
            seen = torch.cat((seen, functional.leaky_relu(convolution(seen), _SLOPE)), 1)
        made: Tensor = last(seen)
        return made * _RESIDUAL_SCALE + x


class _Block(nn.Module):
    """Three dense blocks with a way around them."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.rdb1 = _DenseBlock(width, growth)
        self.rdb2 = _DenseBlock(width, growth)
        self.rdb3 = _DenseBlock(width, growth)

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, width, H, W] of the same."""
        made: Tensor = self.rdb3(self.rdb2(self.rdb1(x)))
        return made * _RESIDUAL_SCALE + x


class Rrdb(nn.Module):
    """The whole network."""

    def __init__(self, layout: RrdbLayout) -> None:
        super().__init__()
        width = layout.width
        self._layout = layout
        self.conv_first = nn.Conv2d(layout.in_channels, width, 3, padding=1)
        self.body = nn.ModuleList(_Block(width, layout.growth) for _ in range(layout.blocks))
        self.conv_body = nn.Conv2d(width, width, 3, padding=1)
        self.conv_up = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(layout.doublings))
        self.conv_hr = nn.Conv2d(width, width, 3, padding=1)
        self.conv_last = nn.Conv2d(width, layout.out_channels, 3, padding=1)

    def forward(self, picture: Tensor) -> Tensor:
        """Return [B, C, H * scale, W * scale] of [B, C, H, W]; values may leave 0..1."""
        height, width = (side * self._layout.scale for side in picture.shape[2:])
        first = self.conv_first(_unshuffled(picture, self._layout.unshuffle))
        x = first
        for block in self.body:
            x = block(x)
        x = first + self.conv_body(x)
        for convolution in self.conv_up:
            doubled = functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = functional.leaky_relu(convolution(doubled), _SLOPE)
        made: Tensor = self.conv_last(functional.leaky_relu(self.conv_hr(x), _SLOPE))
        return made[..., :height, :width]


def rrdb_order(layout: RrdbLayout) -> tuple[tuple[str, ...], ...]:
    """Return the layers in the order in which they compute (see models.resident.order)."""
    blocks = ((f"body.{at}",) for at in range(layout.blocks))
    return ((), *blocks, ("conv_body", "conv_up", "conv_hr", "conv_last"))


def _unshuffled(picture: Tensor, side: int) -> Tensor:
    """Make squares of pixels channels; a picture that is no multiple of them is mirrored at its ends."""
    if side == 1:
        return picture
    missing = [-length % _ALIGNED_PX for length in picture.shape[2:]]
    if any(missing):
        is_mirrored = all(gap < length for gap, length in zip(missing, picture.shape[2:], strict=True))
        mode = "reflect" if is_mirrored else "replicate"
        picture = functional.pad(picture, (0, missing[1], 0, missing[0]), mode=mode)
    return functional.pixel_unshuffle(picture, side)
