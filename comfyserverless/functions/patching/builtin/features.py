"""Change what a U-Net's blocks hand on: backbones, skips and sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.patching.builtin.spectrum import scale_low_frequencies
from comfyserverless.functions.patching.options import OptionsBuilder
from comfyserverless.functions.resampling import resample

Backbone = Callable[[Tensor, float], Tensor | float]
"""Make the factor of a backbone's first half from the backbone and its scale."""


def free_u(builder: OptionsBuilder, b1: float, b2: float, s1: float, s2: float) -> None:
    """Strengthen half of the backbone's channels and weaken the skips' low frequencies.

    Si et al. 2023, FreeU: Free Lunch in Diffusion U-Net, equations 4 and 5, in the two coarsest levels that
    have four and two times the channels of the finest.
    """
    _scale_decoder(builder, ((b1, s1), (b2, s2)), lambda hidden, scale: scale)


def free_u_v2(builder: OptionsBuilder, b1: float, b2: float, s1: float, s2: float) -> None:
    """Do as FreeU, with a backbone factor that follows the structure: 1 where the mean of channels is least.

    Si et al. 2023, equation 3: the mean over channels, scaled to 0..1 by its extremes.
    """
    _scale_decoder(builder, ((b1, s1), (b2, s2)), _structure)


def _structure(hidden: Tensor, scale: float) -> Tensor:
    mean = hidden.mean(1, keepdim=True)
    lowest, highest = mean.amin(dim=(2, 3), keepdim=True), mean.amax(dim=(2, 3), keepdim=True)
    return (scale - 1) * ((mean - lowest) / (highest - lowest)) + 1


def _scale_decoder(
    builder: OptionsBuilder, scales: tuple[tuple[float, float], tuple[float, float]], factor: Backbone
) -> None:
    channels = builder.facts.model_channels
    by_channels = dict(zip((4 * channels, 2 * channels), scales, strict=True))

    def output_block(hidden: Tensor, skip: Tensor, options: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        found = by_channels.get(hidden.shape[1])
        if found is None:
            return hidden, skip
        backbone, low = found
        half = hidden.shape[1] // 2
        first = hidden[:, :half] * factor(hidden, backbone)
        return torch.cat((first, hidden[:, half:]), dim=1), scale_low_frequencies(
            skip, 1, low, is_mean_low=True
        )

    builder.patch("output_block_patch", output_block)


@dataclass(frozen=True, slots=True)
class DeepShrink:
    """Where, when and how maps are made smaller; block_number: the input block, percents: of the way down."""

    block_number: int
    downscale_factor: float
    start_percent: float
    end_percent: float
    downscale_after_skip: bool
    downscale_method: str
    upscale_method: str

    def smaller(self, hidden: Tensor) -> Tensor:
        """Return a smaller map. Raises PromptError if nothing is left of it."""
        height, width = (round(side * (1.0 / self.downscale_factor)) for side in hidden.shape[-2:])
        if height < 1 or width < 1:
            raise PromptError(f"downscaling by {self.downscale_factor:g} leaves nothing of a map")
        return resample(hidden, width, height, self.downscale_method, "disabled")


def shrink_deep_blocks(builder: OptionsBuilder, **settings: Any) -> None:
    """Run the blocks behind an input block on a smaller map while noise is high (Kohya's deep shrink).

    settings: the fields of DeepShrink.
    """
    how = DeepShrink(**settings)
    first = builder.parametrization.percent_to_sigma(how.start_percent)
    last = builder.parametrization.percent_to_sigma(how.end_percent)

    def shrink(hidden: Tensor, options: Mapping[str, Any]) -> Tensor:
        acts = options["block"][1] == how.block_number and last <= float(options["sigmas"][0]) <= first
        return how.smaller(hidden) if acts else hidden

    def grow(hidden: Tensor, skip: Tensor, options: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        if hidden.shape[2:] == skip.shape[2:]:
            return hidden, skip
        return resample(hidden, skip.shape[-1], skip.shape[-2], how.upscale_method, "disabled"), skip

    builder.patch("input_block_patch_after_skip" if how.downscale_after_skip else "input_block_patch", shrink)
    builder.patch("output_block_patch", grow)
