"""Latents as small pictures."""

from __future__ import annotations

import pytest
import torch

from comfyserverless.models.previews.colours import LatentColours, fit_colours, guess_colours


def test_a_latent_becomes_a_picture_of_its_own_size() -> None:
    factors = torch.tensor([[0.5, 0.0, 0.0], [0.0, 0.5, 0.0], [0.1, 0.2, 0.3]])
    latent = torch.zeros(2, 2, 1, 3)
    latent[0, 0, 0, 1] = 1.0
    latent[0, 1, 0, 2] = 9.0
    rgb = LatentColours(factors).latent_to_rgb(latent)
    assert rgb.dtype is torch.uint8
    assert rgb.tolist() == [[[26, 51, 76], [153, 51, 76], [26, 255, 76]]]


def test_without_an_autoencoder_an_empty_latent_is_grey() -> None:
    rgb = guess_colours(4).latent_to_rgb(torch.zeros(1, 4, 2, 2))
    assert set(rgb.flatten().tolist()) == {128}


class BrokenAutoencoder:
    """An autoencoder whose weights are not numbers."""

    latent_channels, downscale_px = 4, 8

    def decode(self, samples: torch.Tensor) -> torch.Tensor:
        return torch.full((samples.shape[0], samples.shape[2] * 8, samples.shape[3] * 8, 3), float("nan"))


def test_colours_cannot_be_fitted_to_pictures_that_are_not_finite() -> None:
    with pytest.raises(ArithmeticError, match="not finite"):
        fit_colours(BrokenAutoencoder())  # type: ignore[arg-type]
