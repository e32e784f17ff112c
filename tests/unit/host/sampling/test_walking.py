"""Walk with the engine's samplers over a model that is called here."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from comfyserverless.host.layers.refusing import NotSupportedError
from comfyserverless.host.sampling import kdiffusion
from comfyserverless.host.sampling.guidance import cfg_function
from comfyserverless.host.sampling.walking import engine_function
from comfyserverless.sampling.noise import begin_brownian, brownian_increment

SIGMAS = torch.tensor([8.0, 4.0, 2.0, 1.0, 0.0])
X = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(1)) * 8


class Model:
    """Draw everything towards a third of it; remember the levels."""

    def __init__(self) -> None:
        self.levels: list[float] = []

    def __call__(self, x: Tensor, sigma: Tensor, model_options: Any = None, seed: Any = None) -> Tensor:
        assert sigma.shape == (x.shape[0],)
        self.levels.append(float(sigma[0]))
        estimate = x / 3
        return cfg_function(None, estimate, estimate / 2, 1.0, x, sigma, model_options or {})


def test_euler_is_what_packs_would_write() -> None:
    model, seen = Model(), list[int]()
    walked = engine_function("euler")(model, X, SIGMAS, {"seed": 1}, lambda told: seen.append(told["i"]))
    x = X
    for first, second in pairwise(SIGMAS):
        x = x + kdiffusion.to_d(x, first.expand(2), x / 3) * (second - first)
    torch.testing.assert_close(walked, x)
    assert model.levels == [8.0, 4.0, 2.0, 1.0]
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "name", ["heun", "dpmpp_2m", "dpm_adaptive", "euler_ancestral", "dpmpp_3m_sde", "uni_pc"]
)
def test_every_kind_of_walk_ends_at_a_finite_latent_and_repeats(name: str) -> None:
    runs = [engine_function(name)(Model(), X, SIGMAS, {"seed": 3}) for _ in range(2)]
    assert torch.isfinite(runs[0]).all()
    assert torch.equal(*runs)


def test_samplers_that_use_the_negative_get_it_from_guidance() -> None:
    options = {"model_options": {"transformer_options": {}}}
    plus = engine_function("euler_cfg_pp")(Model(), X, SIGMAS, options)
    plain = engine_function("euler")(Model(), X, SIGMAS, options)
    assert not torch.allclose(plus, plain)
    assert options == {"model_options": {"transformer_options": {}}}


def test_options_that_are_levels_are_found_by_their_share_of_the_way() -> None:
    class Process:
        """Knows one share."""

        def percent_to_sigma(self, percent: float) -> float:
            return 3.0 * (1 - percent)

    model = Model()
    model.model_sampling = Process()  # type: ignore[attr-defined]
    walked = engine_function("sa_solver")(model, X, SIGMAS, {"seed": 1}, shares={"start_sigma": 0.2})
    assert torch.isfinite(walked).all()


def test_noise_of_a_packs_own_is_refused_and_known_ones_are_those_of_the_seed() -> None:
    given = kdiffusion.default_noise_sampler(X, seed=3)
    assert given(8.0, 4.0).shape == X.shape
    walked = engine_function("euler_ancestral")(Model(), X, SIGMAS, {"seed": 3}, noise_sampler=given)
    assert torch.equal(walked, engine_function("euler_ancestral")(Model(), X, SIGMAS, {"seed": 3}))
    with pytest.raises(NotSupportedError, match="sample_euler_ancestral with a noise_sampler"):
        engine_function("euler_ancestral")(Model(), X, SIGMAS, noise_sampler=lambda sigma, following: X)


def test_single_level_walks_nowhere() -> None:
    assert engine_function("euler")(Model(), X, SIGMAS[:1]) is X


def test_brownian_noise_has_the_increments_of_the_engine() -> None:
    sampler = kdiffusion.BrownianTreeNoiseSampler(X, SIGMAS[-2], SIGMAS[0], seed=5, cpu=True)
    state = begin_brownian(X, SIGMAS, 5)
    expected = brownian_increment(state, SIGMAS[0], SIGMAS[1], X)
    torch.testing.assert_close(sampler(SIGMAS[0], SIGMAS[1]), expected)


def test_batch_of_seeds_gives_each_item_the_noise_of_its_own() -> None:
    both = kdiffusion.BrownianTreeNoiseSampler(X, 1.0, 8.0, seed=[5, 6], cpu=True)(8.0, 4.0)
    one = kdiffusion.BrownianTreeNoiseSampler(X[1:], 1.0, 8.0, seed=6, cpu=True)(8.0, 4.0)
    assert torch.equal(both[1:], one)


def test_ancestral_step_splits_a_level() -> None:
    down, up = kdiffusion.get_ancestral_step(SIGMAS[0], SIGMAS[1])
    assert float(down**2 + up**2) == pytest.approx(16.0)
    assert kdiffusion.get_ancestral_step(8.0, 4.0, eta=0.0) == (4.0, 0.0)


def test_adams_coefficients_of_even_steps_are_those_of_the_book() -> None:
    times = [3.0, 2.0, 1.0, 0.0]
    made = [kdiffusion.linear_multistep_coeff(2, times, 1, j) for j in range(2)]
    assert made == pytest.approx([-1.5, 0.5])
