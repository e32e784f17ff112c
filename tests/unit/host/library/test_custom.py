"""Run samplers of built-in nodes here, where objects and names of packs are known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from comfyserverless.host.library.classes import make_class
from comfyserverless.host.library.custom import LOCAL
from comfyserverless.host.sampling.noise import EmptyNoise, RandomNoise
from comfyserverless.host.sampling.spaces import DiscreteEps
from comfyserverless.host.sampling.walking import EngineFunction
from tests.support.pack_modules import pack_modules


@pytest.fixture(autouse=True)
def _modules(tmp_path: Path) -> Iterator[None]:
    with pack_modules(tmp_path):
        yield


def made(name: str) -> Any:
    """Return an object of a class."""
    return make_class(name, {}, LOCAL[name])()


def test_noise_and_samplers_are_objects_at_once() -> None:
    (noise,) = made("RandomNoise").get_noise(noise_seed=3)
    assert (type(noise), noise.seed) == (RandomNoise, 3)
    assert type(made("DisableNoise").get_noise()[0]) is EmptyNoise
    (sampler,) = made("KSamplerSelect").get_sampler(sampler_name="uni_pc")
    assert isinstance(sampler.sampler_function, EngineFunction)
    assert sampler.engine_name == "uni_pc"


def test_scheduler_gives_levels_without_a_call() -> None:
    model = SimpleNamespace(get_model_object=lambda name: DiscreteEps())
    (sigmas,) = made("BasicScheduler").get_sigmas(model, "karras", 4, 0.5)
    assert len(sigmas) == 5
    assert float(sigmas[-1]) == 0.0
    whole = made("BasicScheduler").get_sigmas(model=model, scheduler="karras", steps=8, denoise=1.0)[0]
    assert torch.equal(sigmas, whole[4:])
