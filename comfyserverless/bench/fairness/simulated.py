"""Play the same load on a virtual clock: long courses in seconds, the same each time."""

from __future__ import annotations

from collections.abc import Sequence

from comfyserverless.bench.fairness.results import HEAVY, LIGHT, FairnessResult, Observed
from comfyserverless.core.config import GRACE_S
from comfyserverless.scheduling.config import SchedulingConfig, policy_named
from comfyserverless.sim.loads import two_backlogged
from comfyserverless.sim.measures import Service
from comfyserverless.sim.world import SimulationPlan, Trace, simulate

WARM_S = 10.0
"""How long estimates are learned before anything counts."""


def play(policies: Sequence[str], slack_s: float, duration_s: float, seed: int = 0) -> FairnessResult:
    """Simulate all policies. Raises ConfigError for one that there is not."""
    observed = {}
    for policy in policies:
        config = SchedulingConfig(slack_s=slack_s, grace_s=GRACE_S, policy=policy_named(policy))
        plan = SimulationPlan(two_backlogged(), config, duration_s=WARM_S + duration_s, seed=seed)
        observed[policy] = _observed(simulate(plan))
    heavy, light = (load.shape for load in two_backlogged())
    facts = {
        "heavy": f"{heavy.images} x {heavy.steps} steps",
        "light": f"{light.images} x {light.steps} steps",
        "seed": seed,
    }
    return FairnessResult(observed, slack_s, duration_s, is_simulated=True, facts=facts)


def _observed(trace: Trace) -> Observed:
    services = [
        Service(each.tenant, each.ended_s - WARM_S, each.charged_s)
        for each in trace.services
        if each.ended_s >= WARM_S
    ]
    waits_s: dict[str, list[float]] = {HEAVY: [], LIGHT: []}
    for prompt in trace.ended:
        if prompt.ended_s is not None and prompt.ended_s >= WARM_S:
            waits_s[prompt.load.tenant].append(prompt.wait_s())
    return Observed(services, waits_s)
