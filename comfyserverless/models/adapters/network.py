"""The networks of T2I-Adapters (Mou et al. 2023, arXiv 2302.08453): features of a picture, level by level.

A picture's squares of pixels become channels, and stages of convolutions make a feature of each level. Names
are those of the original release.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class StageLayout:
    """One stage of an adapter.

    in_channels, channels: what it takes and gives; inner_channels: between its first and last convolution, of
    light adapters; has_convolution: whether it halves the size with a convolution instead of averages.
    """

    in_channels: int
    channels: int
    blocks: int
    is_halving: bool
    inner_channels: int = 0
    has_convolution: bool = False


@dataclass(frozen=True, slots=True)
class AdapterLayout:
    """The structure of one file.

    hint_channels: of the picture; unshuffle: side of the squares of pixels that become channels; kernel: side
    of the convolutions that close a block of a full adapter; block_numbers: of the U-Net's input blocks, -1 for
    its middle block, that the stages' features are added to.
    """

    is_light: bool
    hint_channels: int
    unshuffle: int
    kernel: int
    stages: tuple[StageLayout, ...]
    block_numbers: tuple[int, ...]


class Adapter(nn.Module):
    """Make the features of a picture."""

    def __init__(self, layout: AdapterLayout) -> None:
        super().__init__()
        self._unshuffle = layout.unshuffle
        first = layout.stages[0]
        self.conv_in = (
            nn.Identity() if layout.is_light else nn.Conv2d(first.in_channels, first.channels, 3, padding=1)
        )
        if layout.is_light:
            self.body = nn.ModuleList(_LightStage(stage) for stage in layout.stages)
            self._ends = tuple(range(len(layout.stages)))
        else:
            blocks = [_full_blocks(stage, layout.kernel, is_first=stage is first) for stage in layout.stages]
            self.body = nn.ModuleList(block for stage in blocks for block in stage)
            self._ends = tuple(end - 1 for end in accumulate(len(stage) for stage in blocks))

    def forward(self, hint: Tensor) -> list[Tensor]:
        """Return a feature [N, channels, ...] of each stage; hint: [N, hint_channels, H, W] in 0..1.

        H and W are multiples of the side of the squares.
        """
        x = self.conv_in(functional.pixel_unshuffle(hint, self._unshuffle))
        features = []
        for number, block in enumerate(self.body):
            x = block(x)
            if number in self._ends:
                features.append(x)
        return features


class _Halving(nn.Module):
    """Halve the size: the mean of four cells, or a convolution; odd sides get zeros before the first."""

    def __init__(self, channels: int, *, has_convolution: bool) -> None:
        super().__init__()
        self.op = nn.Conv2d(channels, channels, 3, stride=2, padding=1) if has_convolution else None

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, C, h / 2, w / 2], rounded up, of [N, C, h, w]."""
        if self.op is not None:
            halved: Tensor = self.op(x)
            return halved
        return functional.avg_pool2d(functional.pad(x, (x.shape[3] % 2, 0, x.shape[2] % 2, 0)), 2)


class _FullBlock(nn.Module):
    """A residual block of a full adapter."""

    def __init__(self, stage: StageLayout, kernel: int, *, is_first: bool, has_entry: bool) -> None:
        super().__init__()
        channels = stage.channels
        self.down_opt = (
            _Halving(stage.in_channels, has_convolution=stage.has_convolution)
            if is_first and stage.is_halving
            else None
        )
        self.in_conv = (
            nn.Conv2d(stage.in_channels, channels, kernel, padding=kernel // 2) if has_entry else None
        )
        self.block1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.block2 = nn.Conv2d(channels, channels, kernel, padding=kernel // 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the block makes of x, and x, at the size and width of this block."""
        x = x if self.down_opt is None else self.down_opt(x)
        x = x if self.in_conv is None else self.in_conv(x)
        made: Tensor = self.block2(functional.relu(self.block1(x)))
        return made + x


def _full_blocks(stage: StageLayout, kernel: int, *, is_first: bool) -> list[_FullBlock]:
    has_entry = not is_first and stage.in_channels != stage.channels
    return [
        _FullBlock(stage, kernel, is_first=at == 0, has_entry=has_entry and at == 0)
        for at in range(stage.blocks)
    ]


class _LightBlock(nn.Module):
    """A residual block of a light adapter."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.block1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.block2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the block makes of x, and x."""
        made: Tensor = self.block2(functional.relu(self.block1(x)))
        return made + x


class _LightStage(nn.Module):
    """A stage of a light adapter: few channels between two convolutions of single cells."""

    def __init__(self, stage: StageLayout) -> None:
        super().__init__()
        self.down = _Halving(stage.in_channels, has_convolution=False) if stage.is_halving else None
        self.in_conv = nn.Conv2d(stage.in_channels, stage.inner_channels, 1)
        self.body = nn.Sequential(*(_LightBlock(stage.inner_channels) for _ in range(stage.blocks)))
        self.out_conv = nn.Conv2d(stage.inner_channels, stage.channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the feature of this stage's level."""
        x = x if self.down is None else self.down(x)
        made: Tensor = self.out_conv(self.body(self.in_conv(x)))
        return made
