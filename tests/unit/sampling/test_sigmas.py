"""Check which part of a schedule a sampling call walks."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from comfyserverless.core.errors import PromptError
from comfyserverless.sampling.parametrization import discrete_parametrization
from comfyserverless.sampling.sigmas import WalkRequest, check_scheduled, check_walk, walk_sigmas, walking
from tests.support.recorded_bits import equals_recorded

RECORDED = load_file(Path(__file__).parent / "data" / "sigmas_sd15.safetensors")
PARAMETRIZATION = discrete_parametrization("epsilon")


def walk(**changes: object) -> torch.Tensor:
    return walk_sigmas(PARAMETRIZATION, WalkRequest("normal", 10, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("case", sorted(name for name in RECORDED if name.count("/") == 2))
def test_cut_schedule_equals_recorded_levels(case: str) -> None:
    name, steps, cut = case.split("/")
    is_strength = cut.startswith("denoise")
    request = WalkRequest(
        name,
        int(steps),
        denoise=float(cut.removeprefix("denoise")) if is_strength else 1.0,
        discards_penultimate=not is_strength,
    )
    assert equals_recorded(walk_sigmas(PARAMETRIZATION, request), RECORDED[case])


def test_no_strength_walks_nothing() -> None:
    assert len(walk(denoise=0.0)) == 0


def test_start_at_or_past_the_end_walks_nothing() -> None:
    assert len(walk(start_step=10)) == 0
    assert len(walk(start_step=7, last_step=5)) == 0


def test_last_step_past_the_end_walks_all() -> None:
    assert torch.equal(walk(last_step=10000, force_full_denoise=True), walk())


@given(cut=st.integers(1, 9))
def test_two_ranges_join_to_the_whole(cut: int) -> None:
    first, second = walk(start_step=0, last_step=cut), walk(start_step=cut, last_step=10000)
    assert torch.equal(torch.cat([first[:-1], second]), walk())


@given(cut=st.integers(1, 9))
def test_full_denoise_ends_a_cut_walk_at_zero(cut: int) -> None:
    sigmas = walk(last_step=cut, force_full_denoise=True)
    assert sigmas[-1] == 0
    assert torch.equal(sigmas[:-1], walk()[:cut])


@pytest.mark.parametrize("denoise", [1e-9, 1e-300, 5e-324])
def test_a_strength_that_asks_for_an_endless_schedule_is_refused_with_the_least_one(denoise: float) -> None:
    with pytest.raises(PromptError, match=r"denoise .* is too small for 10 steps: at least 1e-05"):
        walk(denoise=denoise)


def test_the_longest_schedule_of_the_widgets_is_walked() -> None:
    request = WalkRequest("karras", 10_000, denoise=0.01)
    assert len(walk_sigmas(PARAMETRIZATION, request)) == 10_001


@pytest.mark.parametrize(
    "levels", [[1.0, math.nan, 0.0], [math.inf, 0.0], [-1.0, 0.0], [0.0, 0.0], [3.0, 0.0, 1.0]]
)
def test_levels_that_no_sampler_can_walk_are_refused(levels: list[float]) -> None:
    with pytest.raises(PromptError, match=r"cannot be walked: level [12] of"):
        check_walk(torch.tensor(levels))


def test_schedule_that_spaces_no_single_level_is_refused_by_name() -> None:
    request = WalkRequest("kl_optimal", 1)
    with pytest.raises(PromptError, match="scheduler 'kl_optimal' finds no levels for this model and 1 steps"):
        check_scheduled(walk_sigmas(PARAMETRIZATION, request), request)
    given = walk_sigmas(PARAMETRIZATION, WalkRequest("kl_optimal", 2))
    assert check_scheduled(given, request) is given


@pytest.mark.parametrize("levels", [[], [0.0], [5.0], [3.0, 0.0], [0.5, 3.0, 9.0], [2.0, 2.0]])
def test_levels_may_be_few_and_may_rise(levels: list[float]) -> None:
    given = torch.tensor(levels)
    assert check_walk(given) is given


@pytest.mark.parametrize("error", [OverflowError("x"), ZeroDivisionError("x"), torch.linalg.LinAlgError("x")])  # type: ignore[attr-defined]
def test_arithmetic_that_breaks_down_is_the_fault_of_the_prompt(error: Exception) -> None:
    with pytest.raises(PromptError, match="sampler 'lms' cannot walk these levels"), walking("lms"):
        raise error
