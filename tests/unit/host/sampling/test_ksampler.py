"""KSampler objects, whose parts packs put others in the place of."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.pack_modules import module, pack_modules


@pytest.fixture(scope="module", autouse=True)
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pack_modules(tmp_path_factory.mktemp("server")):
        yield


def test_levels_are_those_of_a_function_that_a_pack_has_put_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    samplers = module("comfy.samplers")

    def own(process: Any, name: str, steps: int) -> torch.Tensor:
        return torch.linspace(float(process), 0.0, steps + 1)

    monkeypatch.setattr(samplers, "calculate_sigmas", own)
    model = SimpleNamespace(get_model_object=lambda name: 8)
    sigmas = samplers.KSampler(model, 4, None, "euler", "normal", 1.0).sigmas
    assert sigmas.tolist() == [8.0, 6.0, 4.0, 2.0, 0.0]
