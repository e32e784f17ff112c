"""Compare every schedule with the levels that ComfyUI gave, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from comfyserverless.core.errors import PromptError
from comfyserverless.sampling.parametrization import discrete_parametrization
from comfyserverless.sampling.schedules import SCHEDULES, schedule_levels
from tests.support.recorded_bits import equals_recorded

RECORDED = load_file(Path(__file__).parent / "data" / "sigmas_sd15.safetensors")
PLAIN = sorted(name for name in RECORDED if name.count("/") == 1)
PARAMETRIZATION = discrete_parametrization("epsilon")


@pytest.mark.parametrize("case", PLAIN)
def test_schedule_equals_recorded_levels(case: str) -> None:
    name, steps = case.split("/")
    levels = schedule_levels(name, PARAMETRIZATION, int(steps))
    assert equals_recorded(levels.nan_to_num(), RECORDED[case].nan_to_num())


def test_all_schedules_have_recorded_levels() -> None:
    assert {case.split("/")[0] for case in PLAIN} == set(SCHEDULES)


@given(name=st.sampled_from(sorted(SCHEDULES)), steps=st.integers(2, 150))
def test_levels_fall_to_zero(name: str, steps: int) -> None:
    levels = schedule_levels(name, PARAMETRIZATION, steps)
    assert levels[-1] == 0
    assert (levels.diff() < 0).all()


def test_unknown_schedule_names_the_known_ones() -> None:
    with pytest.raises(PromptError, match=r"'quick' is not supported; known: simple, .*kl_optimal"):
        schedule_levels("quick", PARAMETRIZATION, 4)
