"""Every setting that a node offers for a sampler changes the walk."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from comfyserverless.sampling.samplers.base import UncondSampler
from comfyserverless.sampling.samplers.registry import find_sampler

SIGMAS = torch.tensor([10.0, 6.0, 3.0, 1.4, 0.5, 0.1, 0.0])
BETWEEN = {"start_sigma": 20.0, "end_sigma": 0.0}

SETTINGS = [
    ("euler_ancestral", {}, {"eta": 0.5}),
    ("euler_ancestral", {}, {"s_noise": 0.5}),
    ("euler_ancestral_cfg_pp", {}, {"eta": 0.5}),
    ("euler_ancestral_cfg_pp", {}, {"s_noise": 0.5}),
    ("lms", {}, {"order": 2}),
    ("dpmpp_3m_sde", {}, {"eta": 0.5}),
    ("dpmpp_3m_sde", {}, {"s_noise": 0.5}),
    ("dpmpp_2m_sde", {}, {"eta": 0.5}),
    ("dpmpp_2m_sde", {}, {"s_noise": 0.5}),
    ("dpmpp_sde", {}, {"eta": 0.5}),
    ("dpmpp_sde", {}, {"s_noise": 0.5}),
    ("dpmpp_sde", {}, {"r": 0.3}),
    ("dpmpp_2s_ancestral", {}, {"eta": 0.5}),
    ("dpmpp_2s_ancestral", {}, {"s_noise": 0.5}),
    ("dpm_adaptive", {}, {"order": 2}),
    ("dpm_adaptive", {}, {"rtol": 0.5}),
    ("dpm_adaptive", {}, {"atol": 0.5}),
    ("dpm_adaptive", {}, {"h_init": 0.5}),
    ("dpm_adaptive", {}, {"pcoeff": 0.5}),
    ("dpm_adaptive", {}, {"icoeff": 0.5}),
    ("dpm_adaptive", {}, {"dcoeff": 0.5}),
    ("dpm_adaptive", {}, {"accept_safety": 0.99}),
    ("dpm_adaptive", {}, {"eta": 0.5}),
    ("dpm_adaptive", {"eta": 0.5}, {"s_noise": 0.5}),
    ("er_sde", {}, {"solver_type": "ODE"}),
    ("er_sde", {}, {"max_stage": 1}),
    ("er_sde", {"solver_type": "Reverse-time SDE"}, {"eta": 0.5}),
    ("er_sde", {}, {"s_noise": 0.5}),
    ("sa_solver", BETWEEN, {"eta": 0.5}),
    ("sa_solver", BETWEEN, {"s_noise": 0.5}),
    ("sa_solver", BETWEEN, {"start_sigma": 1.0}),
    ("sa_solver", BETWEEN, {"end_sigma": 1.0}),
    ("sa_solver", BETWEEN, {"predictor_order": 1}),
    ("sa_solver", BETWEEN, {"corrector_order": 1}),
    ("sa_solver", {**BETWEEN, "predictor_order": 2, "corrector_order": 0}, {"simple_order_2": True}),
    ("sa_solver", {**BETWEEN, "predictor_order": 1, "corrector_order": 2}, {"simple_order_2": True}),
    ("seeds_2", {}, {"solver_type": "phi_2"}),
    ("seeds_2", {}, {"eta": 0.5}),
    ("seeds_2", {}, {"s_noise": 0.5}),
    ("seeds_2", {}, {"r": 0.3}),
]


def walk(name: str, options: dict[str, Any], sigmas: Tensor = SIGMAS) -> Tensor:
    """Walk towards data that are normally distributed, from noise."""
    sampler = find_sampler(name)
    x = torch.randn(1, 4, 4, 4, generator=torch.Generator().manual_seed(0)) * float(sigmas[0])
    state = sampler.begin(x, sigmas, 7, options)
    for _ in range(200):
        if sampler.is_done(state):
            break
        x, sigma = sampler.query(state)
        denoised = torch.tanh(x / (1 + sigma**2))
        if isinstance(sampler, UncondSampler):
            state = sampler.advance_with(state, denoised, denoised * 0.9)
        else:
            state = sampler.advance(state, denoised)
    return sampler.result(state)


@pytest.mark.parametrize(("name", "base", "change"), SETTINGS)
def test_a_setting_changes_the_walk(name: str, base: dict[str, Any], change: dict[str, Any]) -> None:
    assert torch.equal(walk(name, base), walk(name, base))
    assert not torch.equal(walk(name, base), walk(name, {**base, **change}))


def test_simple_weights_come_near_the_exact_ones_for_small_steps() -> None:
    sigmas = torch.linspace(2.0, 1.0, 41)
    options = {"eta": 0.0, "predictor_order": 2, "corrector_order": 2}
    exact, simple = (walk("sa_solver", {**options, "simple_order_2": flag}, sigmas) for flag in (False, True))
    first = walk("sa_solver", {**options, "predictor_order": 1, "corrector_order": 0}, sigmas)
    assert float((simple - exact).abs().max()) < 0.05 * float((first - exact).abs().max())
