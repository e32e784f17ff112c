"""Prove that functions declare what the control tower schedules by."""

from __future__ import annotations

import pytest

from comfyserverless.core.modelfn import BUILTIN_FUNCTIONS
from comfyserverless.functions.registry import FUNCTIONS


def test_all_built_in_functions_are_implemented() -> None:
    assert set(FUNCTIONS) == set(BUILTIN_FUNCTIONS)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_function_declares_the_ports_and_lane_of_its_entry(name: str) -> None:
    assert FUNCTIONS[name].spec() == BUILTIN_FUNCTIONS[name]
