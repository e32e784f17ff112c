"""The figures of `bench fairness`."""

from __future__ import annotations

import json

import pytest

from comfyserverless.bench.fairness.results import (
    HEAVY,
    LIGHT,
    FairnessResult,
    Observed,
    is_as_promised,
    show,
    summary,
)
from comfyserverless.sim.measures import Service


def observed(*turns: str, charge_s: float = 1.0, light_waits_s: tuple[float, ...] = (2.0,)) -> Observed:
    services = [Service(tenant, float(at), charge_s) for at, tenant in enumerate(turns, start=1)]
    return Observed(services, {HEAVY: (), LIGHT: light_waits_s})


def result(**policies: Observed) -> FairnessResult:
    return FairnessResult(policies, slack_s=0.5, duration_s=9.0, is_simulated=False, facts={"size_px": 64})


FAIR = observed(HEAVY, LIGHT, HEAVY, LIGHT, light_waits_s=(1.0, 2.0, 9.0))
QUEUE = observed(*[HEAVY] * 9, LIGHT)


def test_summary_has_the_figures_that_are_asked_for() -> None:
    shown = summary(result(vtime=FAIR, fifo=QUEUE))
    assert (shown["max_service_difference"], shown["bound"], shown["cheap_share_fifo"]) == (1.0, 3.0, 0.1)
    assert shown["light_p95_wait"] == {"vtime": 9.0, "fifo": 2.0}
    assert shown["size_px"] == 64
    policies = shown["policies"]
    assert isinstance(policies, dict)
    assert policies["vtime"]["course"] == [[1.0, 1.0], [2.0, 0.0], [3.0, 1.0], [4.0, 0.0]]
    assert policies["vtime"]["light_mean_wait"] == 4.0
    assert policies["fifo"]["heavy_mean_wait"] is None


@pytest.mark.parametrize(
    ("policies", "is_kept"),
    [
        ({"vtime": FAIR, "fifo": QUEUE}, True),
        ({"vtime": QUEUE}, False),
        ({"fifo": FAIR}, False),
        ({"sjf": QUEUE}, True),
    ],
)
def test_promise_is_kept_by_vtime_and_missed_by_one_queue(policies: dict[str, Observed], is_kept: bool) -> None:
    assert is_as_promised(result(**policies)) is is_kept


def test_last_line_is_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    shown = result(vtime=FAIR, sjf=QUEUE)
    show(shown)
    lines = capsys.readouterr().out.splitlines()
    assert json.loads(lines[-1]) == json.loads(json.dumps(summary(shown)))
    assert any(line.startswith("vtime") and "50.0%" in line for line in lines)
