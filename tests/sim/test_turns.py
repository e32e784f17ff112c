"""Prompts of equal cost end in turns, whatever they cost and whatever the slack is."""

from __future__ import annotations

import pytest

from comfyserverless.core.ids import TenantId
from comfyserverless.scheduling.config import SchedulingConfig
from comfyserverless.sim.loads import TenantLoad
from comfyserverless.sim.prompts import PromptShape
from comfyserverless.sim.world import SimulationPlan, simulate

SENT = ("A1", "A2", "B1", "C1", "C2", "A3")
IN_TURNS = ["A1", "B1", "C1", "A2", "C2", "A3"]
APART_S = 0.001


def ends(steps: int, slack_s: float, error_ratio: float, seed: int) -> list[str]:
    """Play them on one worker that is warm; returns the names in the order in which they end."""
    shape, begins_s = PromptShape(1, steps), 20.0
    sent_at_s = {name: begins_s + place * APART_S for place, name in enumerate(SENT)}
    loads = [TenantLoad(TenantId("warm"), shape, sent_at_s=(0.0, 5.0))]
    for tenant in "ABC":
        times_s = tuple(at_s for name, at_s in sent_at_s.items() if name[0] == tenant)
        loads.append(TenantLoad(TenantId(tenant), shape, sent_at_s=times_s))
    config = SchedulingConfig(slack_s=slack_s, grace_s=2.0)
    plan = SimulationPlan(tuple(loads), config, duration_s=60.0, error_ratio=error_ratio, seed=seed)
    names = {at_s: name for name, at_s in sent_at_s.items()}
    return [names[prompt.sent_s] for prompt in simulate(plan).ended if prompt.load.tenant != "warm"]


@pytest.mark.parametrize("slack_s", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("steps", [1, 4, 20, 30, 120])
def test_prompts_of_equal_cost_end_in_turns(steps: int, slack_s: float) -> None:
    assert ends(steps, slack_s, error_ratio=0.0, seed=0) == IN_TURNS


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("steps", [4, 20, 40])
def test_a_hair_more_or_less_changes_no_turn_of_prompts_shorter_than_the_slack(steps: int, seed: int) -> None:
    assert ends(steps, slack_s=2.0, error_ratio=0.05, seed=seed) == IN_TURNS
