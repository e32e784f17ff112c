"""Space levels by names, and by functions of packs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from comfyserverless.core.samplers import SCHEDULER_NAMES
from comfyserverless.host.sampling import levels
from comfyserverless.host.sampling.spaces import DiscreteEps
from comfyserverless.sampling.parametrization import discrete_parametrization
from comfyserverless.sampling.schedules import schedule_levels


@pytest.mark.parametrize("name", SCHEDULER_NAMES)
def test_schedulers_give_the_bits_of_the_engine(name: str) -> None:
    expected = schedule_levels(name, discrete_parametrization("epsilon"), 7)
    assert torch.equal(levels.calculate_sigmas(DiscreteEps(), name, 7), expected)


def test_scheduler_of_a_pack_is_called_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_range(n: int, sigma_min: float, sigma_max: float) -> Any:
        return torch.linspace(sigma_max, sigma_min, n + 1)

    handlers = levels.SCHEDULER_HANDLERS
    monkeypatch.setitem(handlers, "mine", levels.SchedulerHandler(by_range, use_ms=False))
    monkeypatch.setitem(
        handlers, "other", levels.SchedulerHandler(lambda process, steps: process.sigmas[:steps])
    )
    assert float(levels.calculate_sigmas(DiscreteEps(), "mine", 4)[0]) == pytest.approx(14.6146, abs=1e-3)
    assert len(levels.calculate_sigmas(DiscreteEps(), "other", 4)) == 4
    with pytest.raises(ValueError, match="'none' is not known"):
        levels.calculate_sigmas(DiscreteEps(), "none", 4)


def test_karras_levels_are_those_of_the_scheduler() -> None:
    process = DiscreteEps()
    made = levels.get_sigmas_karras(5, float(process.sigma_min), float(process.sigma_max))
    assert torch.allclose(made, levels.calculate_sigmas(process, "karras", 5))
