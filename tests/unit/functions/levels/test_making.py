"""Functions that make lists of levels, of a model or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.registry import FUNCTIONS
from comfyserverless.sampling.noise import starting_noise
from comfyserverless.sampling.parametrization import discrete_parametrization
from comfyserverless.sampling.schedules import beta, schedule_levels
from tests.support.analytic_models import MODEL, AnalyticPool

EPSILON = discrete_parametrization("epsilon")
SIGMAS = torch.tensor([8.0, 4.0, 2.0, 0.0])


def call(name: str, **inputs: Any) -> Mapping[str, Any]:
    function = FUNCTIONS[name]
    given = {"model": MODEL, **inputs} if "model" in function.takes.split() else inputs  # type: ignore[attr-defined]
    return function.execute(function.load_model(given, AnalyticPool()), **given)


def test_schedule_is_what_a_sampler_of_that_name_walks() -> None:
    whole = call("sigmas.schedule", scheduler="karras", steps=5, denoise=1.0)["sigmas"]
    assert torch.equal(whole, schedule_levels("karras", EPSILON, 5))
    half = call("sigmas.schedule", scheduler="karras", steps=5, denoise=0.5)["sigmas"]
    assert torch.equal(half, schedule_levels("karras", EPSILON, 10)[-6:])
    assert len(call("sigmas.schedule", scheduler="karras", steps=5, denoise=0.0)["sigmas"]) == 0


def test_beta_takes_its_shape_parameters() -> None:
    made = call("sigmas.beta", steps=5, alpha=0.5, beta=0.9)["sigmas"]
    assert torch.equal(made, beta(EPSILON, 5, 0.5, 0.9))


def test_turbo_takes_tenths_of_the_way() -> None:
    made = call("sigmas.turbo", steps=2, denoise=0.5)["sigmas"]
    assert torch.equal(made, torch.stack([EPSILON.sigmas[499], EPSILON.sigmas[399], torch.tensor(0.0)]))


@pytest.mark.parametrize(
    ("percent", "is_actual", "expected"),
    [
        (0.0, False, EPSILON.percent_to_sigma(0.0)),
        (0.0, True, EPSILON.sigma_max),
        (1.0, False, 0.0),
        (1.0, True, EPSILON.sigma_min),
        (0.5, True, EPSILON.percent_to_sigma(0.5)),
    ],
)
def test_level_at_a_share_of_the_way(percent: float, is_actual: bool, expected: float) -> None:
    assert call("sigmas.at_percent", percent=percent, is_actual=is_actual)["sigma"] == expected


@pytest.mark.parametrize(
    ("step", "high", "low"), [(1, [8, 4], [4, 2, 0]), (0, [8], [8, 4, 2, 0]), (9, [8, 4, 2, 0], [])]
)
def test_split_shares_the_level_at_the_cut(step: int, high: list[float], low: list[float]) -> None:
    parts = call("sigmas.split", sigmas=SIGMAS, step=step)
    assert (parts["high"].tolist(), parts["low"].tolist()) == (high, low)


def test_first_level_is_replaced_without_touching_the_list() -> None:
    assert call("sigmas.set", sigmas=SIGMAS, first=9.0)["sigmas"].tolist() == [9.0, 4.0, 2.0, 0.0]
    assert SIGMAS[0] == 8.0
    assert call("sigmas.set", sigmas=[1.0, 0.5], first=None)["sigmas"].tolist() == [1.0, 0.5]


def test_shapes_are_made_by_name() -> None:
    settings = {"steps": 3, "sigma_min": 0.1, "sigma_max": 10.0}
    assert len(call("sigmas.shape", shape="exponential", sigmas=None, settings=settings)["sigmas"]) == 4
    assert call("sigmas.shape", shape="flip", sigmas=SIGMAS[:2], settings={})["sigmas"].tolist() == [4.0, 8.0]


def test_noise_between_two_levels_is_added_in_model_units() -> None:
    samples = torch.zeros(1, 4, 4, 4)
    noise = starting_noise(samples, 3)
    given = {"samples": samples, "batch_index": None, "seed": 3}
    scale = AnalyticPool().facts(MODEL).scale_factor
    noisy = call("latent.noise", sigmas=torch.tensor([5.0, 2.0]), **given)["samples"]
    assert torch.allclose(noisy, noise * 3.0 / scale)
    assert torch.equal(call("latent.noise", sigmas=torch.zeros(0), **given)["samples"], samples)
    assert torch.count_nonzero(call("latent.noise", sigmas=SIGMAS, **{**given, "seed": None})["samples"]) == 0


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.6), (0.6, 0.0)])
def test_shapes_that_are_no_distribution_are_refused(alpha: float, beta: float) -> None:
    with pytest.raises(PromptError, match="is 0; allowed: above 0"):
        call("sigmas.beta", steps=3, alpha=alpha, beta=beta)
