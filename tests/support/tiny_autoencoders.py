"""Make files of TAESD with random numbers, in the original layout, and compute by hand what they give."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

Tensors = dict[str, Tensor]

#: places of the blocks, and of the convolutions between them, which have no bias
_ENCODER_BLOCKS, _ENCODER_STEPS = (1, 3, 4, 5, 7, 8, 9, 11, 12, 13), (2, 6, 10)
_DECODER_BLOCKS, _DECODER_STEPS = (3, 4, 5, 8, 9, 10, 13, 14, 15, 18), (7, 12, 17)
_ENCODER_LAST, _DECODER_LAST = 14, 19
_GAIN = 1.4


def encoder_tensors(channels: int = 4, width: int = 4, seed: int = 0) -> Tensors:
    """Return the tensors of an encoder file."""
    made = _Maker(seed)
    made.convolution("0", 3, width)
    made.chain(_ENCODER_BLOCKS, _ENCODER_STEPS, width)
    made.convolution(str(_ENCODER_LAST), width, channels)
    return made.tensors


def decoder_tensors(channels: int = 4, width: int = 4, seed: int = 1) -> Tensors:
    """Return the tensors of a decoder file."""
    made = _Maker(seed)
    made.convolution("1", channels, width)
    made.chain(_DECODER_BLOCKS, _DECODER_STEPS, width)
    made.convolution(str(_DECODER_LAST), width, 3)
    return made.tensors


def encode_by_hand(tensors: Mapping[str, Tensor], pictures: Tensor) -> Tensor:
    """Return what the encoder of these tensors makes of [B, 3, h * 8, w * 8] in 0..1."""
    x = _convolved(tensors, 0, pictures)
    for place in range(1, _ENCODER_LAST):
        x = _block(tensors, place, x) if place in _ENCODER_BLOCKS else _convolved(tensors, place, x, stride=2)
    return _convolved(tensors, _ENCODER_LAST, x)


def decode_by_hand(tensors: Mapping[str, Tensor], latents: Tensor) -> Tensor:
    """Return what the decoder of these tensors makes of [B, C, h, w], in the units of diffusion models."""
    x = F.relu(_convolved(tensors, 1, 3 * torch.tanh(latents / 3)))
    for place in range(3, _DECODER_LAST):
        if place in _DECODER_BLOCKS:
            x = _block(tensors, place, x)
        elif place in _DECODER_STEPS:
            x = _convolved(tensors, place, x.repeat_interleave(2, 2).repeat_interleave(2, 3))
    return _convolved(tensors, _DECODER_LAST, x)


def write_tensors(path: Path, tensors: Tensors) -> Path:
    """Write a file: a pickle if its name ends in .pth, else safetensors."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".pth":
        torch.save(tensors, path)
    else:
        save_file(tensors, path)
    return path


class _Maker:
    def __init__(self, seed: int) -> None:
        self.tensors: Tensors = {}
        self._generator = torch.Generator().manual_seed(seed)

    def convolution(self, name: str, inputs: int, outputs: int, *, has_bias: bool = True) -> None:
        spread = _GAIN / (9 * inputs) ** 0.5
        self.tensors[f"{name}.weight"] = spread * torch.randn(outputs, inputs, 3, 3, generator=self._generator)
        if has_bias:
            self.tensors[f"{name}.bias"] = 0.2 * torch.randn(outputs, generator=self._generator)

    def chain(self, blocks: tuple[int, ...], steps: tuple[int, ...], width: int) -> None:
        for place in blocks:
            for part in (0, 2, 4):
                self.convolution(f"{place}.conv.{part}", width, width)
        for place in steps:
            self.convolution(str(place), width, width, has_bias=False)


def _convolved(tensors: Mapping[str, Tensor], name: int | str, x: Tensor, stride: int = 1) -> Tensor:
    return F.conv2d(x, tensors[f"{name}.weight"], tensors.get(f"{name}.bias"), stride=stride, padding=1)


def _block(tensors: Mapping[str, Tensor], place: int, x: Tensor) -> Tensor:
    y = F.relu(_convolved(tensors, f"{place}.conv.0", x))
    y = F.relu(_convolved(tensors, f"{place}.conv.2", y))
    return F.relu(_convolved(tensors, f"{place}.conv.4", y) + x)
