"""Estimates from history."""

from __future__ import annotations

import pytest

from comfyserverless.core.messages import Timing
from comfyserverless.scheduling.config import SchedulingConfig
from comfyserverless.scheduling.estimates import Estimates, MeanHistory
from comfyserverless.scheduling.events import InvocationSpec
from tests.support.scheduling import spec


def _estimates() -> Estimates:
    return Estimates(SchedulingConfig(slack_s=0.0, default_cost_s=7.0, default_load_s=3.0, ewma_ratio=0.5))


def _keyed(function: str, cost_key: str) -> InvocationSpec:
    base = spec("x", key=function)
    return InvocationSpec(base.id, base.run, base.tenant, base.node, function, base.lane, cost_key)


def test_without_history_the_default_holds() -> None:
    assert _estimates().run_s(spec("x")) == 7.0
    assert _estimates().load_s(("unet", "vae")) == 6.0


def test_a_cost_key_without_history_takes_that_of_its_function() -> None:
    estimates = _estimates()
    estimates.observe(_keyed("vae.decode", "512"), Timing(compute_s=0.2), ())
    assert estimates.run_s(_keyed("vae.decode", "1024")) == 0.2


def test_a_mean_moves_by_the_ratio() -> None:
    estimates = _estimates()
    for measured_s in (1.0, 2.0):
        estimates.observe(_keyed("step", "k"), Timing(compute_s=measured_s, transfer_s=0.5), ())
    assert estimates.run_s(_keyed("step", "k")) == pytest.approx(2.0)


def test_a_cold_start_does_not_make_the_next_step_look_slow() -> None:
    estimates = _estimates()
    estimates.observe(spec("x"), Timing(load_s=30.0, compute_s=0.1), ("unet", "clip"))
    assert estimates.run_s(spec("y")) == 0.1
    assert estimates.load_s(("unet",)) == 15.0


def test_loading_what_was_thought_to_be_there_counts_as_part_of_the_run() -> None:
    estimates = _estimates()
    estimates.observe(spec("x"), Timing(load_s=2.0, compute_s=0.5), ())
    assert estimates.run_s(spec("x")) == 2.5


def test_a_history_forgets_the_key_not_measured_for_longest() -> None:
    history = MeanHistory(0.5, limit=2)
    for key in ("a", "b", "a", "c"):
        history.observe(key, 1.0)
    assert (history.get("a"), history.get("b"), len(history)) == (1.0, None, 2)
