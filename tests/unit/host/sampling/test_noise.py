"""Draw noise with the process-wide generator, as packs rely on."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from comfyserverless.host.sampling import noise
from comfyserverless.sampling.noise import starting_noise

LATENT = torch.zeros(2, 4, 3, 3)


def test_noise_has_the_bits_of_the_engine_and_seeds_what_is_drawn_later() -> None:
    assert torch.equal(noise.prepare_noise(LATENT, 5), starting_noise(LATENT, 5))
    later = torch.rand(3)
    noise.prepare_noise(LATENT, 5)
    assert torch.equal(torch.rand(3), later)


def test_part_of_a_batch_gets_the_noise_it_has_in_the_whole() -> None:
    assert torch.equal(noise.prepare_noise(LATENT, 5, [3, 1]), starting_noise(LATENT, 5, [3, 1]))


def test_empty_latent_gets_the_channels_of_the_model() -> None:
    model = SimpleNamespace(get_model_object=lambda name: SimpleNamespace(latent_channels=16))
    assert noise.fix_empty_latent_channels(model, LATENT).shape == (2, 16, 3, 3)
    assert noise.fix_empty_latent_channels(model, LATENT + 1).shape == LATENT.shape


def test_noise_of_nodes_is_an_object_here_and_a_value_there() -> None:
    for value in ({"kind": "NOISE", "seed": 7}, {"kind": "NOISE", "seed": None}):
        assert noise.noise_tree(noise.noise_of(value)) == value
    assert not noise.EmptyNoise().generate_noise({"samples": LATENT}).any()

    class Own(noise.RandomNoise):
        """A pack's own, that no worker knows."""

    assert noise.noise_tree(Own(3)) is None
