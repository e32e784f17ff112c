"""Compare noise with recorded draws, and prove that streams continue anywhere."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from comfyserverless.sampling.noise import (
    begin_brownian,
    begin_step_noise,
    brownian_increment,
    draw_step_noise,
    starting_noise,
)
from tests.support.recorded_bits import equals_recorded

RECORDED = load_file(Path(__file__).parent / "data" / "noise.safetensors")
SIGMAS = torch.tensor([14.614643, 5.0, 1.0, 0.111419, 0.0])


@pytest.mark.parametrize("case", sorted(RECORDED))
def test_starting_noise_equals_recorded(case: str) -> None:
    seed, shape, *index = case.split("/")
    latent = torch.zeros([int(n) for n in shape.split("x")])
    batch_index = [int(n) for n in index[0].split("_")[1:]] if index else None
    assert equals_recorded(starting_noise(latent, int(seed), batch_index), RECORDED[case])


def test_starting_noise_leaves_the_default_generator_alone() -> None:
    before = torch.get_rng_state()
    starting_noise(torch.zeros(1, 4, 8, 8), 3)
    assert torch.equal(torch.get_rng_state(), before)


def test_step_noise_continues_after_pickling() -> None:
    x = torch.zeros(1, 4, 8, 8)
    straight = moved = begin_step_noise(x, 2**64 - 1)
    for _ in range(3):
        one, straight = draw_step_noise(straight, x)
        other, moved = draw_step_noise(pickle.loads(pickle.dumps(moved)), x)
        assert torch.equal(one, other)


def test_step_noise_differs_from_the_starting_noise() -> None:
    x = torch.zeros(1, 4, 8, 8)
    assert not torch.equal(draw_step_noise(begin_step_noise(x, 7), x)[0], starting_noise(x, 7))


def test_brownian_increments_do_not_depend_on_the_order_of_queries() -> None:
    x = torch.zeros(1, 4, 8, 8)
    noise = begin_brownian(x, SIGMAS, 5)
    forward = [brownian_increment(noise, a, b, x) for a, b in pairwise(SIGMAS[:4])]
    backward = [brownian_increment(noise, SIGMAS[i], SIGMAS[i + 1], x) for i in (2, 1, 0)]
    assert all(torch.equal(a, b) for a, b in zip(forward, reversed(backward), strict=True))


def test_brownian_increments_are_standard_normal_and_independent() -> None:
    x = torch.zeros(1, 1, 100, 100)
    noise = begin_brownian(x, SIGMAS, 5)
    one, two = (brownian_increment(noise, SIGMAS[i], SIGMAS[i + 1], x).flatten() for i in (0, 1))
    assert float(one.std()) == pytest.approx(1, abs=0.03)
    assert float(torch.corrcoef(torch.stack([one, two]))[0, 1]) == pytest.approx(0, abs=0.04)
