"""Hand-laid latents are whitened block statistics."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from comfyserverless.training.scenery.latents import latent_of, pixels_of
from comfyserverless.training.scenery.scenes import random_scene
from comfyserverless.training.scenery.world import draw


def test_latents_have_zero_mean_and_unit_spread() -> None:
    rng = np.random.default_rng(77)
    latents = torch.stack([latent_of(draw(random_scene(rng), rng)) for _ in range(400)])
    assert latents.shape == (400, 4, 16, 16)
    assert latents.mean((0, 2, 3)).abs().max() < 0.15
    assert (latents.std((0, 2, 3)) - 1).abs().max() < 0.1


def test_a_flat_picture_has_a_flat_latent_and_an_edge_shows_in_the_last_channel() -> None:
    flat = np.full((64, 96, 3), 100, np.uint8)
    assert latent_of(flat).flatten(1).std(1).max() < 1e-6
    edged = flat.copy()
    edged[:, 36:] = 220
    spread = latent_of(edged)[3]
    assert spread[:, 4].min() > spread[:, 3].max() + 1


def test_pixels_lie_between_minus_one_and_one() -> None:
    picture = np.array([[[0, 127, 255]]], np.uint8)
    assert pixels_of(picture).flatten().tolist() == pytest.approx([-1, -0.0039, 1], abs=1e-3)
