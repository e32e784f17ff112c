"""Two backlogged tenants, one with expensive prompts and one with cheap ones, under every policy; and many.

The same `SchedulingState` as the product's, on a virtual clock. What holds here in simulated seconds is
measured on a real server by `bench fairness`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyserverless.scheduling.config import PolicyName, SchedulingConfig
from comfyserverless.sim.loads import TenantLoad, many_tenants, two_backlogged
from comfyserverless.sim.measures import Service, bound_s, leads, mean, percentile, shares, widest_s
from comfyserverless.sim.world import Simulation, SimulationPlan, Trace, simulate

SLACK_S = 0.5
GRACE_S = 2.0
WARM_S = 5.0
DURATION_S = 120.0


@cache
def played(policy: PolicyName, grace_s: float = GRACE_S) -> Trace:
    config = SchedulingConfig(slack_s=SLACK_S, grace_s=grace_s, policy=policy)
    return simulate(SimulationPlan(two_backlogged(), config, duration_s=DURATION_S))


def warm(trace: Trace) -> list[Service]:
    return [service for service in trace.services if service.ended_s > WARM_S]


def waits_s(trace: Trace, tenant: str) -> list[float]:
    return [prompt.wait_s() for prompt in trace.ended if prompt.load.tenant == tenant]


def test_by_vtime_two_tenants_are_within_the_bound_at_every_moment_however_long_it_goes_on() -> None:
    services = warm(played("vtime"))
    course = leads(services, "heavy", "light")
    assert widest_s(course) <= bound_s(services, SLACK_S)
    assert shares(services)["light"] == pytest.approx(0.5, abs=0.01)


def test_a_tenant_keeps_its_place_over_the_moments_between_its_prompts() -> None:
    without_grace = simulate(
        SimulationPlan(
            two_backlogged(),
            SchedulingConfig(slack_s=SLACK_S),
            duration_s=DURATION_S,
            between_s=0.01,
        )
    )
    with_grace = simulate(
        SimulationPlan(
            two_backlogged(),
            SchedulingConfig(slack_s=SLACK_S, grace_s=GRACE_S),
            duration_s=DURATION_S,
            between_s=0.01,
        )
    )
    assert shares(warm(without_grace))["light"] < 0.35
    assert shares(warm(with_grace))["light"] == pytest.approx(0.5, abs=0.01)


def test_in_one_queue_the_cheap_tenant_gets_a_small_share() -> None:
    assert shares(warm(played("fifo")))["light"] < 0.25


def test_by_shortest_job_the_expensive_tenant_gets_what_is_left() -> None:
    assert shares(warm(played("sjf")))["heavy"] < 0.25


@pytest.mark.parametrize("policy", ["round-robin", "request-count"])
def test_counting_calls_or_prompts_leaves_the_cheap_tenant_behind(policy: PolicyName) -> None:
    services = warm(played(policy))
    assert shares(services)["light"] < 0.35
    assert widest_s(leads(services, "heavy", "light")) > 10 * bound_s(services, SLACK_S)


def test_the_cheap_tenant_waits_less_by_vtime_than_in_one_queue_or_by_counted_prompts() -> None:
    p95_s = {policy: percentile(waits_s(played(policy), "light"), 0.95) for policy in ("vtime", "fifo")}
    assert p95_s["vtime"] < p95_s["fifo"] / 3
    assert mean(waits_s(played("vtime"), "light")) < mean(waits_s(played("request-count"), "light")) / 3


def test_the_same_seed_gives_the_same_trace() -> None:
    loads = many_tenants(6, seed=3, rate_per_s=0.4)
    plan = SimulationPlan(loads, SchedulingConfig(slack_s=1.0), workers=2, duration_s=30.0, seed=9)
    assert simulate(plan).services == simulate(plan).services


@settings(max_examples=8, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 8),
    st.integers(1, 3),
    st.sampled_from(("vtime", "fifo", "sjf", "round-robin", "request-count")),
)
def test_no_lane_idles_while_there_is_work_for_it(
    seed: int, tenants: int, workers: int, policy: PolicyName
) -> None:
    def check(simulation: Simulation) -> None:
        for lane, waiting in simulation.state.table.backlog.lanes.items():
            assert not (waiting and simulation.state.pool.free[lane])

    loads = many_tenants(tenants, seed)
    config = SchedulingConfig(slack_s=1.0, grace_s=GRACE_S, policy=policy, tenant_weights=_weights(loads))
    plan = SimulationPlan(loads, config, workers=workers, duration_s=15.0, seed=seed)
    simulation = Simulation(plan, watch=check)
    trace = simulation.play()
    simulation.state.validate()
    assert trace.services


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(3, 8))
def test_many_backlogged_tenants_of_all_sizes_get_service_by_their_weights(seed: int, tenants: int) -> None:
    loads = many_tenants(tenants, seed)
    weights = _weights(loads)
    config = SchedulingConfig(slack_s=SLACK_S, grace_s=GRACE_S, tenant_weights=weights)
    trace = simulate(SimulationPlan(loads, config, duration_s=90.0, seed=seed))
    services = [service for service in trace.services if service.ended_s > 20.0]
    for one, other in combinations(weights, 2):
        course = leads(services, one, other, weights)
        assert widest_s(course) <= bound_s(services, SLACK_S, weights) + GRACE_S


def _weights(loads: Sequence[TenantLoad]) -> dict[str, float]:
    return {load.tenant: load.weight for load in loads}
