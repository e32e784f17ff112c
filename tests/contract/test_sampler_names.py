"""The samplers that prompts may name are exactly those that workers have."""

from __future__ import annotations

from comfyserverless.core.samplers import AVAILABLE_SAMPLERS
from comfyserverless.sampling.samplers.registry import SAMPLERS


def test_available_samplers_are_exactly_the_implemented_ones() -> None:
    assert set(AVAILABLE_SAMPLERS) == set(SAMPLERS)
