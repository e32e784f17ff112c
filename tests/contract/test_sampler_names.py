"""The samplers that prompts may name are exactly those that workers have, in the same order."""

from __future__ import annotations

from comfyserverless.core.samplers import SAMPLER_NAMES
from comfyserverless.sampling.samplers.registry import SAMPLERS


def test_every_sampler_of_comfyui_is_implemented_and_no_other() -> None:
    assert tuple(SAMPLERS) == SAMPLER_NAMES
