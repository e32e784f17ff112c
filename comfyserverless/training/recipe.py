"""The numbers of a training: examples, steps and sizes. The full one is meant for two cores and an hour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from comfyserverless.training.loop import Pace

SizePx = tuple[int, int]

SIZES_PX: Mapping[SizePx, tuple[float, float]] = {
    (128, 128): (0.40, 0.56),
    (64, 64): (0.50, 0.06),
    (96, 96): (0.03, 0.07),
    (160, 160): (0.01, 0.06),
    (192, 192): (0.01, 0.07),
    (192, 128): (0.02, 0.06),
    (128, 192): (0.02, 0.06),
    (128, 96): (0.005, 0.03),
    (96, 128): (0.005, 0.03),
}
"""Size of canvas -> its share of the steps at the beginning and in the end; small ones teach colours fast."""

_EXAMPLES: Mapping[SizePx, int] = {
    (128, 128): 12_000,
    (64, 64): 4_000,
    (96, 96): 2_000,
    (160, 160): 1_500,
    (192, 192): 1_500,
    (192, 128): 1_500,
    (128, 192): 1_500,
    (128, 96): 1_200,
    (96, 128): 1_200,
}
_CONTROL_EXAMPLES: Mapping[SizePx, int] = {(128, 128): 2_000, (192, 128): 400, (128, 192): 400, (96, 96): 400}


@dataclass(frozen=True, slots=True)
class Recipe:
    """One training; counts are for each process, batches for a canvas of 128x128 and each process."""

    examples: Mapping[SizePx, int]
    control_examples: Mapping[SizePx, int]
    pictures: int
    captions: int
    style_examples: int
    autoencoder: Pace
    reader: Pace
    denoiser: Pace
    lora: Pace
    control: Pace
    word: Pace
    autoencoder_batch: int = 8
    reader_batch: int = 64
    denoiser_batch: int = 32
    small_batch: int = 12


FULL = Recipe(
    examples=_EXAMPLES,
    control_examples=_CONTROL_EXAMPLES,
    pictures=5_000,
    captions=20_000,
    style_examples=1_200,
    autoencoder=Pace(2_800, 2e-3, 0.995, 1e-3),
    reader=Pace(1_600, 3e-3),
    denoiser=Pace(2_600, 1.2e-3, 0.998, matrix_rate=0.02),
    lora=Pace(500, 3e-3, 0.98),
    control=Pace(1_100, 1e-3, 0.99, matrix_rate=0.01),
    word=Pace(200, 2e-2, 0.95, 0.0),
)

SMOKE = Recipe(
    examples=dict.fromkeys(_EXAMPLES, 8),
    control_examples=dict.fromkeys(_CONTROL_EXAMPLES, 8),
    pictures=8,
    captions=50,
    style_examples=8,
    autoencoder=Pace(2, 2e-3, 0.9),
    reader=Pace(3, 3e-3),
    denoiser=Pace(3, 1.2e-3, 0.9, matrix_rate=0.02),
    lora=Pace(2, 3e-3),
    control=Pace(2, 1e-3, matrix_rate=0.01),
    word=Pace(2, 1e-2),
    autoencoder_batch=2,
    reader_batch=4,
    denoiser_batch=2,
    small_batch=2,
)
"""Every stage for a few steps: shows that the way is open, not that anything is learnt."""
