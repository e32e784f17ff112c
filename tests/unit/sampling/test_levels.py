"""Levels without a model: their ends, their order, and how lists change."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.sampling import levels

SIGMAS = torch.tensor([8.0, 4.0, 2.0, 0.0])


@pytest.mark.parametrize(
    "made",
    [
        lambda: levels.karras(6, 0.1, 10.0, 7.0),
        lambda: levels.exponential(6, 0.1, 10.0),
        lambda: levels.polyexponential(6, 0.1, 10.0, 1.5),
    ],
)
def test_levels_fall_from_the_highest_to_the_lowest_and_end_in_0(made: Callable[[], Tensor]) -> None:
    sigmas = made()
    assert sigmas.shape == (7,)
    assert bool((sigmas[:-1] > sigmas[1:]).all())
    assert torch.allclose(sigmas[[0, -2, -1]], torch.tensor([10.0, 0.1, 0.0]), atol=1e-6)


def test_laplace_levels_stay_between_the_ends() -> None:
    sigmas = levels.laplace(9, 0.1, 10.0, 0.0, 0.5)
    assert float(sigmas.min()) >= 0.1
    assert float(sigmas.max()) <= 10.0
    assert torch.allclose(sigmas[4], torch.tensor(1.0))


def test_vp_levels_are_those_of_the_continuous_process() -> None:
    sigmas = levels.variance_preserving(3, 19.9, 0.1, 0.001)
    assert float(sigmas[0]) == pytest.approx((torch.e ** (19.9 / 2 + 0.1) - 1) ** 0.5, rel=1e-4)
    assert float(sigmas[-1]) == 0.0


@pytest.mark.parametrize(
    ("steps", "denoise", "count"), [(10, 1.0, 11), (10, 0.5, 6), (4, 1.0, 5), (30, 0.1, 4), (10, 0.0, 0)]
)
def test_aligned_steps_walk_the_last_share(steps: int, denoise: float, count: int) -> None:
    sigmas = levels.align_your_steps("SD1", steps, denoise)
    assert len(sigmas) == count
    assert count == 0 or float(sigmas[-1]) == 0.0
    if denoise == 1.0:
        assert float(sigmas[0]) == pytest.approx(14.6146412293)


def test_flipped_levels_do_not_start_at_0() -> None:
    assert levels.flip(SIGMAS).tolist() == [pytest.approx(0.0001), 2.0, 4.0, 8.0]
    assert levels.flip(SIGMAS[:2]).tolist() == [4.0, 8.0]


def test_extended_levels_lie_between_those_in_range() -> None:
    assert levels.extend(SIGMAS, 2, 4.0, 3.0, "linear").tolist() == [8.0, 4.0, 3.0, 2.0, 0.0]
    assert levels.extend(SIGMAS, 2, -1.0, 0.0, "linear").tolist() == [8.0, 6.0, 4.0, 3.0, 2.0, 1.0, 0.0]
    cosine = levels.extend(SIGMAS[:2], 2, -1.0, 0.0, "cosine")
    assert float(cosine[1]) == pytest.approx(8.0 - 4.0 * 0.5**0.5)
    assert len(levels.extend(torch.zeros(0), 2, -1.0, 0.0, "sine")) == 0


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: levels.karras(6, 0.1, 10.0, 0.0), "rho is 0"),
        (lambda: levels.exponential(6, 0.0, 10.0), "sigma_min is 0"),
        (lambda: levels.polyexponential(6, 0.1, 0.0, 1.0), "sigma_max is 0"),
    ],
)
def test_settings_without_a_meaning_are_clear_errors(made: Callable[[], Tensor], message: str) -> None:
    with pytest.raises(PromptError, match=message):
        made()


def test_rho_near_zero_is_refused() -> None:
    with pytest.raises(PromptError, match=r"rho 0\.001 is too small"):
        levels.karras(5, 0.1, 5000.0, 0.001)


def test_lists_are_not_extended_without_end() -> None:
    with pytest.raises(PromptError, match="allowed are 1000000 levels"):
        levels.extend(torch.linspace(9, 1, 20_000), 100, -1.0, 0.0, "linear")
