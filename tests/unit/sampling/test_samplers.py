"""Prove that samplers converge at their order, and that their state can move anywhere."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.sampling.samplers.base import Sampler, SamplerState, UncondSampler
from comfyserverless.sampling.samplers.registry import SAMPLERS, find_sampler

DATA_STD = 1.5
FIRST, LAST = 8.0, 0.5
SIGMAS = torch.tensor([10.0, 6.0, 3.0, 1.4, 0.5, 0.1, 0.0])
NO_NOISE = {"eta": 0.0, "solver_type": "ODE"}

# Global order on a smooth path. Multistep methods of higher order begin with a first-order step, so that its
# error, O(h^2), rules; so do UniPC's and DPM-Solver-fast's last steps. Heun++ is of first order, because its
# weights are not 1/2. DPM-Solver++(2S) with CFG++ mixes estimates of two levels: its error stays, order 0.
ORDERS = {
    "euler": 1,
    "euler_cfg_pp": 1,
    "euler_ancestral": 1,
    "euler_ancestral_cfg_pp": 1,
    "heun": 2,
    "heunpp2": 1,
    "exp_heun_2_x0": 2,
    "exp_heun_2_x0_sde": 2,
    "dpm_2": 2,
    "dpm_2_ancestral": 2,
    "lms": 2,
    "dpm_fast": 2,
    "dpmpp_2s_ancestral": 2,
    "dpmpp_2s_ancestral_cfg_pp": 0,
    "dpmpp_sde": 2,
    "dpmpp_2m": 2,
    "dpmpp_2m_cfg_pp": 2,
    "dpmpp_2m_sde": 2,
    "dpmpp_2m_sde_heun": 2,
    "dpmpp_3m_sde": 2,
    "ipndm": 2,
    "ipndm_v": 2,
    "deis": 2,
    "res_multistep": 2,
    "res_multistep_cfg_pp": 2,
    "res_multistep_ancestral": 2,
    "res_multistep_ancestral_cfg_pp": 2,
    "gradient_estimation": 1,
    "gradient_estimation_cfg_pp": 1,
    "er_sde": 2,
    "seeds_2": 2,
    "seeds_3": 3,
    "sa_solver": 3,
    "sa_solver_pece": 3,
    "ddim": 1,
    "uni_pc": 2,
    "uni_pc_bh2": 2,
}

# Walks where the order shows: some errors change their sign at fewer steps, ER-SDE's sums rule at many, and
# DPM-Solver-fast ends with the same orders at multiples of three only.
STEPS = {
    "er_sde": (8, 16),
    "dpm_fast": (96, 192),
    **dict.fromkeys(("dpmpp_3m_sde", "ipndm_v", "sa_solver", "sa_solver_pece"), (512, 1024)),
}

# No path to converge to, since no option turns their noise off: their distribution converges, see below.
# DPM-Solver adaptive has a tolerance in place of steps.
WITH_OWN_TESTS = {"ddpm", "lcm", "dpm_adaptive"}

# They end at the last level above 0.
ABOVE_ZERO = {"dpm_fast", "dpm_adaptive"}


def denoise_gaussian(x: Tensor, sigma: Tensor) -> Tensor:
    """Return the exact denoiser of normal data with DATA_STD."""
    return x * DATA_STD**2 / (DATA_STD**2 + sigma**2)


def solve(sampler: Sampler, x: Tensor, sigmas: Tensor, options: Mapping[str, Any] | None = None) -> Tensor:
    state = sampler.begin(x, sigmas, 3, options or {})
    while not sampler.is_done(state):
        state = sampler.advance(state, denoise_gaussian(*sampler.query(state)))
    return sampler.result(state)


def levels_of(steps: int) -> Tensor:
    return torch.linspace(math.log(FIRST), math.log(LAST), steps + 1, dtype=torch.float64).exp()


def error_of(sampler: Sampler, sigmas: Tensor, options: Mapping[str, Any]) -> float:
    """Return how far a walk from 1 at level FIRST to LAST is from the exact path."""
    exact = ((LAST**2 + DATA_STD**2) / (FIRST**2 + DATA_STD**2)) ** 0.5
    return abs(float(solve(sampler, torch.ones(1, 1, 1, 1, dtype=torch.float64), sigmas, options)) - exact)


@pytest.mark.parametrize(("name", "order"), ORDERS.items())
def test_error_falls_at_the_order_of_the_method(name: str, order: int) -> None:
    walks = [levels_of(steps) for steps in STEPS.get(name, (64, 128))]
    coarse, fine = (error_of(SAMPLERS[name], sigmas, NO_NOISE) for sigmas in walks)
    assert math.log2(coarse / fine) == pytest.approx(order, abs=0.3)


@pytest.mark.parametrize("order", [2, 3])
def test_error_of_an_adaptive_walk_falls_at_its_order_where_its_steps_have_a_given_length(order: int) -> None:
    free = {"order": order, "rtol": 1e9, "icoeff": 0.0}
    spans = [math.log(FIRST / LAST) / steps for steps in (16, 32)]
    sampler, sigmas = SAMPLERS["dpm_adaptive"], levels_of(1)
    coarse, fine = (error_of(sampler, sigmas, {**free, "h_init": h}) for h in spans)
    assert math.log2(coarse / fine) == pytest.approx(order, abs=0.3)


def variance_error(name: str, denoise: Callable[[Tensor, Tensor], Tensor], steps: int) -> float:
    """Return how far the variance of what a walk makes is from that of data at level LAST.

    A step is a * x + b * noise. Noise must be 1 everywhere, so that both factors can be seen.
    """
    sampler, nothing = SAMPLERS[name], torch.zeros(1, 1, 1, 1, dtype=torch.float64)
    state, variance = sampler.begin(nothing, levels_of(steps), 3, {}), FIRST**2 + DATA_STD**2
    while not sampler.is_done(state):
        sigma = sampler.query(state)[1]
        one, state = (
            sampler.advance({**state, "x": x}, denoise(x, sigma)) for x in (torch.ones_like(nothing), nothing)
        )
        a, b = float(one["x"] - state["x"]), float(state["x"])
        variance = a**2 * variance + b**2
    return abs(variance - LAST**2 - DATA_STD**2)


def denoise_consistently(x: Tensor, sigma: Tensor) -> Tensor:
    """Return the start of the exact path through x: what a consistency model gives (Song et al. 2023)."""
    return x * DATA_STD / (DATA_STD**2 + sigma**2) ** 0.5


@pytest.fixture
def noise_of_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(noise: dict[str, Any], x: Tensor) -> tuple[Tensor, dict[str, Any]]:
        return torch.ones_like(x), noise

    monkeypatch.setattr("comfyserverless.sampling.samplers.ddpm.draw_step_noise", draw)


@pytest.mark.usefixtures("noise_of_ones")
def test_variance_that_ddpm_makes_converges_at_first_order() -> None:
    coarse, fine = (variance_error("ddpm", denoise_gaussian, steps) for steps in (64, 128))
    assert math.log2(coarse / fine) == pytest.approx(1, abs=0.3)


@pytest.mark.usefixtures("noise_of_ones")
@pytest.mark.parametrize("steps", [1, 3, 8])
def test_lcm_makes_the_exact_variance_of_a_consistent_model_in_any_number_of_steps(steps: int) -> None:
    assert variance_error("lcm", denoise_consistently, steps) < 1e-12
    assert variance_error("lcm", denoise_gaussian, steps) > 0.1


def test_every_sampler_has_a_tested_order() -> None:
    assert {name.removesuffix("_gpu") for name in SAMPLERS} == set(ORDERS) | WITH_OWN_TESTS


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("euler_ancestral", 100),
        ("euler_ancestral_cfg_pp", 100),
        ("exp_heun_2_x0_sde", 25),
        ("dpm_2_ancestral", 50),
        ("dpmpp_2s_ancestral", 50),
        ("dpmpp_sde", 25),
        ("dpmpp_2m_sde", 25),
        ("dpmpp_2m_sde_heun", 25),
        ("dpmpp_3m_sde", 25),
        ("ddpm", 100),
        ("res_multistep_ancestral", 100),
        ("er_sde", 25),
        ("seeds_2", 25),
        ("seeds_3", 25),
    ],
)
def test_fresh_noise_keeps_the_distribution(name: str, steps: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 1, 80, 80, generator=generator) * (10**2 + DATA_STD**2) ** 0.5
    sigmas = torch.cat([torch.logspace(1, -2, steps), torch.zeros(1)])
    assert float(solve(SAMPLERS[name], x, sigmas).std()) == pytest.approx(DATA_STD, rel=0.05)


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_walk_that_moves_at_every_boundary_has_the_same_bits(name: str) -> None:
    sampler = SAMPLERS[name]
    x = torch.randn(2, 4, 4, 4, generator=torch.Generator().manual_seed(1))
    straight = moved = sampler.begin(x, SIGMAS, 2**64 - 1, {})
    while not sampler.is_done(straight):
        straight = sampler.advance(straight, denoise_gaussian(*sampler.query(straight)))
        denoised = denoise_gaussian(*sampler.query(moved))
        moved = sampler.advance(pickle.loads(pickle.dumps(moved)), denoised)
    assert torch.equal(sampler.result(straight), sampler.result(moved))


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_state_is_literals_and_tensors_and_never_changes(name: str) -> None:
    sampler = SAMPLERS[name]
    state: SamplerState = sampler.begin(torch.ones(1, 4, 4, 4), SIGMAS, 1, {})
    while not sampler.is_done(state):
        assert all(leaf is None or isinstance(leaf, int | float | str | Tensor) for leaf in leaves(state))
        before = pickle.dumps(state)
        following = sampler.advance(state, denoise_gaussian(*sampler.query(state)))
        assert pickle.dumps(state) == before
        state = following


@pytest.mark.parametrize("name", sorted(name for name in SAMPLERS if not SAMPLERS[name].is_dynamic))
def test_listed_evaluations_are_those_that_happen(name: str) -> None:
    sampler = SAMPLERS[name]
    state = sampler.begin(torch.ones(1, 4, 4, 4), SIGMAS, 1, {})
    for evaluation in sampler.evaluations(SIGMAS):
        x, sigma = sampler.query(state)
        assert (state["step"], float(sigma)) == (evaluation.step, evaluation.sigma)
        state = sampler.advance(state, denoise_gaussian(x, sigma))
        assert (state["step"] > evaluation.step) == evaluation.is_last_of_step
    assert sampler.is_done(state)


@pytest.mark.parametrize("name", sorted(set(SAMPLERS) - ABOVE_ZERO))
def test_single_step_gives_the_denoised_latent(name: str) -> None:
    x = torch.randn(1, 4, 4, 4, generator=torch.Generator().manual_seed(1)) * 10
    result = solve(SAMPLERS[name], x, torch.tensor([10.0, 0.0]))
    torch.testing.assert_close(result, denoise_gaussian(x, torch.tensor(10.0)), atol=1e-2, rtol=1e-3)


def test_unknown_sampler_names_the_known_ones() -> None:
    with pytest.raises(PromptError, match=r"'plms' is not supported; known: euler, .*uni_pc_bh2"):
        find_sampler("plms")


@pytest.mark.parametrize(
    ("steps", "sizes"),
    [
        (-1, [(6, 12), (8, 16), (10, 20), (10, 20), (10, 20), (10, 20)]),
        (2, [(7, 14), (10, 20), (10, 20), (10, 20), (10, 20), (10, 20)]),
        (0, [(4, 8)] * 6),
    ],
)
def test_lcm_enlarges_its_estimate_in_the_first_steps(steps: int, sizes: list[tuple[int, int]]) -> None:
    sampler, x = SAMPLERS["lcm"], torch.randn(1, 4, 4, 8)
    upscale = {"ratio": 2.5, "steps": steps, "method": "bislerp"}
    state, seen = sampler.begin(x, SIGMAS, 7, {"upscale": upscale}), []
    while not sampler.is_done(state):
        asked, sigma = sampler.query(state)
        state = sampler.advance(state, denoise_gaussian(asked, sigma))
        seen.append(tuple(sampler.result(state).shape[2:]))
    assert seen == sizes


def test_lcm_that_enlarges_goes_on_with_the_numbers_behind_the_starting_noise() -> None:
    sampler, generator = SAMPLERS["lcm"], torch.Generator().manual_seed(7)
    torch.randn(1, 4, 4, 6, generator=generator)
    upscale = {"ratio": 2.0, "steps": 1, "method": "nearest-exact"}
    state = sampler.begin(torch.zeros(1, 4, 4, 6), SIGMAS, 7, {"upscale": upscale})
    enlarged = sampler.result(sampler.advance(state, torch.ones(1, 4, 4, 6)))
    torch.testing.assert_close(enlarged, 1.0 + 6.0 * torch.randn(1, 4, 8, 12, generator=generator))


def test_lcm_renoises_the_estimate_to_the_next_level() -> None:
    sampler = SAMPLERS["lcm"]
    state = sampler.begin(torch.full((1, 1, 80, 80), 9.0), SIGMAS, 1, {})
    x = sampler.result(sampler.advance(state, torch.full((1, 1, 80, 80), 2.0)))
    assert float(x.mean()) == pytest.approx(2.0, abs=0.3)
    assert float(x.std()) == pytest.approx(6.0, rel=0.05)


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name.endswith("cfg_pp")])
def test_cfg_pp_ends_at_the_guided_estimate_with_the_noise_of_the_unguided(name: str) -> None:
    sampler = SAMPLERS[name]
    assert isinstance(sampler, UncondSampler)
    x, denoised, uncond = (torch.full((1, 1, 1, 1), value) for value in (20.0, 3.0, 1.0))
    state = sampler.begin(x, torch.tensor([10.0, 5.0]), 1, {"eta": 0.0})
    while not sampler.is_done(state):
        state = sampler.advance_with(state, denoised, uncond)
    assert float(sampler.result(state)) == pytest.approx(3.0 + 5.0 * (20.0 - 1.0) / 10.0)


def test_the_alternative_of_euler_cfg_pp_is_euler_unguided_and_goes_from_the_unguided_estimate_guided() -> None:
    sampler, options = SAMPLERS["euler_cfg_pp"], {"is_alternative": True}
    assert isinstance(sampler, UncondSampler)
    x = torch.randn(1, 4, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(solve(sampler, x, SIGMAS, options), solve(SAMPLERS["euler"], x, SIGMAS))
    one, denoised, uncond = (torch.full((1, 1, 1, 1), value) for value in (20.0, 3.0, 1.0))
    state = sampler.begin(one, torch.tensor([10.0, 5.0]), 1, options)
    guided = sampler.result(sampler.advance_with(state, denoised, uncond))
    assert float(guided) == pytest.approx(20.0 + (20.0 - 3.0 + 1.0 - 3.0) / 10.0 * (5.0 - 10.0))


@pytest.mark.parametrize("name", ["sa_solver", "sa_solver_pece"])
def test_sa_solver_adds_noise_between_its_levels_only(name: str) -> None:
    x = torch.ones(1, 4, 4, 4)
    quiet = solve(SAMPLERS[name], x, SIGMAS)
    outside = solve(SAMPLERS[name], x, SIGMAS, {"start_sigma": 2.9, "end_sigma": 1.5})
    inside = solve(SAMPLERS[name], x, SIGMAS, {"start_sigma": 2.9, "end_sigma": 0.3})
    assert torch.equal(quiet, outside)
    assert not torch.allclose(quiet, inside, atol=0.01)


@pytest.mark.parametrize("name", ["seeds_2", "exp_heun_2_x0", "exp_heun_2_x0_sde", "er_sde"])
def test_solver_types_differ(name: str) -> None:
    kinds = ("Reverse-time SDE", "ODE", "ER-SDE") if name == "er_sde" else ("phi_1", "phi_2")
    x = torch.ones(1, 4, 4, 4, dtype=torch.float64)
    results = [solve(SAMPLERS[name], x, SIGMAS, {"solver_type": kind}) for kind in kinds]
    for one, other in pairwise(results):
        assert not torch.allclose(one, other, atol=1e-3)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("name", [name for name in SAMPLERS if SAMPLERS[name].is_dynamic])
def test_dynamic_walk_tells_each_evaluation_before_it_happens(name: str, order: int) -> None:
    sampler, options = SAMPLERS[name], {"order": order}
    state = sampler.begin(torch.ones(1, 4, 4, 4), SIGMAS, 1, options)
    assert sampler.evaluations(SIGMAS, options) == [sampler.upcoming(state)]
    seen: list[tuple[int, bool]] = []
    while (evaluation := sampler.upcoming(state)) is not None:
        x, sigma = sampler.query(state)
        assert (state["step"], float(sigma)) == (evaluation.step, evaluation.sigma)
        state = sampler.advance(state, denoise_gaussian(x, sigma))
        assert (state["step"] > evaluation.step) == evaluation.is_last_of_step
        seen.append((evaluation.step, evaluation.is_last_of_step))
    assert sampler.is_done(state)
    assert len(seen) == order * state["step"]


@pytest.mark.parametrize("order", [2, 3])
def test_adaptive_walk_takes_more_steps_and_errs_less_for_a_lower_tolerance(order: int) -> None:
    sampler, sigmas = SAMPLERS["dpm_adaptive"], torch.tensor([8.0, 0.5, 0.0], dtype=torch.float64)
    exact = ((0.5**2 + DATA_STD**2) / (8.0**2 + DATA_STD**2)) ** 0.5
    errors, steps = [], []
    for tolerance in (1e-2, 1e-4, 1e-6):
        options = {"order": order, "rtol": tolerance, "atol": tolerance / 10}
        state = sampler.begin(torch.ones(1, 1, 1, 1, dtype=torch.float64), sigmas, 3, options)
        while not sampler.is_done(state):
            state = sampler.advance(state, denoise_gaussian(*sampler.query(state)))
        errors.append(abs(float(sampler.result(state)) - exact))
        steps.append(state["step"])
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert steps[0] < steps[1] < steps[2]


def test_adaptive_walk_refuses_steps_that_are_too_long_and_keeps_the_latent() -> None:
    sampler = SAMPLERS["dpm_adaptive"]
    state = sampler.begin(torch.ones(1, 1, 1, 1), SIGMAS, 3, {"h_init": 4.0, "rtol": 1e-4, "atol": 1e-5})
    following = state
    while following["step"] == 0:
        following = sampler.advance(following, denoise_gaussian(*sampler.query(following)))
    assert following["t"] == state["t"]
    assert following["x"] is state["x"]
    assert following["h"] < state["h"]


def test_adaptive_walk_ends_with_an_error_where_the_model_gives_no_numbers() -> None:
    sampler = SAMPLERS["dpm_adaptive"]
    state, nothing = sampler.begin(torch.ones(1, 1, 1, 1), SIGMAS, 3, {}), torch.full((1, 1, 1, 1), math.nan)
    for _ in range(2):
        state = sampler.advance(state, nothing)
    with pytest.raises(PromptError, match="not finite"):
        sampler.advance(state, nothing)


@pytest.mark.parametrize("name", sorted(ABOVE_ZERO))
def test_dpm_solver_ends_at_the_last_level_above_zero(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 1, 80, 80, generator=generator, dtype=torch.float64) * (10**2 + DATA_STD**2) ** 0.5
    sigmas = torch.cat([torch.logspace(1, 0, 13), torch.zeros(1)]).double()
    expected = x * ((1.0 + DATA_STD**2) / (10**2 + DATA_STD**2)) ** 0.5
    torch.testing.assert_close(solve(SAMPLERS[name], x, sigmas), expected, atol=0.0, rtol=0.03)


@pytest.mark.parametrize("name", sorted(ABOVE_ZERO))
def test_dpm_solver_adds_noise_back_where_it_is_asked_to(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 1, 80, 80, generator=generator) * (10**2 + DATA_STD**2) ** 0.5
    sigmas = torch.logspace(1, 0, 40)
    noisy = solve(SAMPLERS[name], x, sigmas, {"eta": 1.0})
    assert not torch.allclose(noisy, solve(SAMPLERS[name], x, sigmas), atol=0.1)
    assert float(noisy.std()) == pytest.approx((1.0 + DATA_STD**2) ** 0.5, rel=0.05)


@pytest.mark.parametrize("steps", range(1, 8))
def test_dpm_fast_evaluates_once_per_step_of_the_schedule(steps: int) -> None:
    sigmas = torch.linspace(10.0, 1.0, steps + 1)
    assert len(SAMPLERS["dpm_fast"].evaluations(sigmas)) == steps


@pytest.mark.parametrize("name", ["sa_solver", "sa_solver_pece"])
def test_sa_solver_walks_levels_that_lie_too_close_for_single_precision(name: str) -> None:
    sigmas = 10.0 * (1 - 1e-5) ** torch.arange(8, dtype=torch.float64)
    x = torch.full((1, 1, 1, 1), 5.0)
    result = solve(SAMPLERS[name], x, sigmas.float())
    torch.testing.assert_close(result, x * float(sigmas[-1] / 10.0), rtol=1e-3, atol=0.0)


@pytest.mark.parametrize("options", [{"h_init": 0.0}, {"accept_safety": 100.0}])
def test_adaptive_walk_that_comes_to_no_end_is_refused(
    options: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comfyserverless.sampling.samplers.dpm_solver.adaptive._MAX_ATTEMPTS", 20)
    with pytest.raises(PromptError, match=r"comes to no end: after \d+ steps .* raise rtol, atol or h_init"):
        solve(SAMPLERS["dpm_adaptive"], torch.ones(1, 1, 2, 2), torch.tensor([8.0, 0.5, 0.0]), options)
