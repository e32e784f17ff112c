"""Draw the noise that sampling starts from, as `comfy.sample` does: with the process-wide CPU generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def prepare_noise(latent_image: Tensor, seed: int, noise_inds: Sequence[int] | None = None) -> Tensor:
    """Return standard normal noise of a latent's shape; it seeds the process-wide CPU generator.

    Packs draw unseeded noise later, which then is the same for a seed. noise_inds: one draw for each index of a
    larger batch, so that a part of it gets the noise that it had in the whole.
    """
    generator = torch.manual_seed(seed)
    if noise_inds is None:
        return torch.randn(latent_image.shape, dtype=latent_image.dtype, generator=generator)
    draws: dict[int, Tensor] = {}
    shape = [1, *latent_image.shape[1:]]
    for index in range(max(noise_inds) + 1):
        draw = torch.randn(shape, dtype=latent_image.dtype, generator=generator)
        if index in noise_inds:
            draws[index] = draw
    return torch.cat([draws[index] for index in noise_inds])


def fix_empty_latent_channels(model: Any, latent_image: Tensor, *args: Any) -> Tensor:
    """Return an empty latent with the channels of a model's family; one with content as it is."""
    channels = model.get_model_object("latent_format").latent_channels
    if latent_image.shape[1] == channels or torch.count_nonzero(latent_image) > 0:
        return latent_image
    return latent_image.new_zeros([latent_image.shape[0], channels, *latent_image.shape[2:]])


class RandomNoise:
    """NOISE of a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def generate_noise(self, input_latent: dict[str, Any]) -> Tensor:
        """Draw the noise of a LATENT."""
        return prepare_noise(input_latent["samples"], self.seed, input_latent.get("batch_index"))


class EmptyNoise:
    """NOISE that is none."""

    def __init__(self) -> None:
        self.seed = 0

    def generate_noise(self, input_latent: dict[str, Any]) -> Tensor:
        """Return zeros."""
        return torch.zeros(input_latent["samples"].shape, dtype=input_latent["samples"].dtype)


def noise_of(value: dict[str, Any]) -> RandomNoise | EmptyNoise:
    """Return the object for the NOISE of a built-in node."""
    return EmptyNoise() if value["seed"] is None else RandomNoise(value["seed"])


def noise_tree(noise: RandomNoise | EmptyNoise) -> dict[str, Any] | None:
    """Return the value of a NOISE; None for a class of a pack's own."""
    if type(noise) is EmptyNoise:
        return {"kind": "NOISE", "seed": None}
    return {"kind": "NOISE", "seed": noise.seed} if type(noise) is RandomNoise else None
