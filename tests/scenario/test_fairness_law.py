"""The paper's bound: two tenants that both have ready work throughout an interval get nearly the same service.

Stated exactly. Two tenants are *jointly backlogged* over an interval if after every event in it both have at
least one ready invocation that waits for a slot of the same lane. W(u) is the service of tenant u in that lane
during the interval, in seconds divided by u's weight. S is the slack, L the largest single charge, estimated or
measured. Then

    |W(f) - W(g)| <= 2 (S + L)

for every pair and every such interval,
- with one slot, for measured service however wrong the estimates are and whatever workers are lost, and
- with any number of slots, for service charged at dispatch when the estimates are exact.
With k slots and wrong estimates, k charges at once can be wrong before any is measured: L becomes k L. What a
tenant may make up of short pauses comes on top: with a grace G the bound is 2 (S + L) + G.
"""

from __future__ import annotations

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.scheduling_service import COSTS_S, ServiceMeter, ServicePlan

_patient = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
_seeds = st.integers(0, 2**32 - 1)
_slacks_s = st.sampled_from((0.0, 0.5, 3.0))
_graces_s = st.sampled_from((0.0, 0.0, 1.0))
_weights = st.sampled_from(((), (2.0,), (1.0, 0.5)))
_rounding_s = 1e-9


def _played(plan: ServicePlan) -> ServiceMeter:
    meter = ServiceMeter(plan)
    meter.play()
    return meter


@_patient
@given(
    st.builds(
        ServicePlan,
        seed=_seeds,
        tenants=st.integers(2, 4),
        slack_s=_slacks_s,
        grace_s=_graces_s,
        error_ratio=st.sampled_from((0.5, 1.0)),
        loss_ratio=st.sampled_from((0.0, 0.1)),
        weights=_weights,
    )
)
@example(ServicePlan(59, tenants=2, slack_s=0.0, error_ratio=1.0))
def test_measured_service_on_one_slot_keeps_the_bound_whatever_the_estimates(plan: ServicePlan) -> None:
    meter = _played(plan)
    assert meter.widest_gap_s("measured_s") <= 2 * (plan.slack_s + meter.largest_s) + plan.grace_s + _rounding_s


@_patient
@given(
    st.builds(
        ServicePlan,
        seed=_seeds,
        tenants=st.integers(2, 4),
        slots=st.integers(1, 4),
        slack_s=_slacks_s,
        grace_s=_graces_s,
        weights=_weights,
    )
)
@example(ServicePlan(106, tenants=2, slots=3, slack_s=0.0, weights=(2.0,)))
def test_charged_service_on_many_slots_keeps_the_bound_when_estimates_are_exact(plan: ServicePlan) -> None:
    meter = _played(plan)
    assert (
        meter.widest_gap_s("dispatched_s") <= 2 * (plan.slack_s + meter.largest_s) + plan.grace_s + _rounding_s
    )


@_patient
@given(
    st.builds(
        ServicePlan,
        seed=_seeds,
        tenants=st.integers(2, 4),
        slots=st.integers(2, 4),
        slack_s=_slacks_s,
        grace_s=_graces_s,
        error_ratio=st.just(0.5),
        loss_ratio=st.sampled_from((0.0, 0.1)),
    )
)
def test_measured_service_on_many_slots_keeps_the_bound_with_one_charge_per_slot(plan: ServicePlan) -> None:
    meter = _played(plan)
    bound_s = 2 * (plan.slack_s + plan.slots * meter.largest_s) + plan.grace_s
    assert meter.widest_gap_s("measured_s") <= bound_s + _rounding_s


@_patient
@given(
    st.builds(
        ServicePlan,
        seed=_seeds,
        tenants=st.integers(2, 4),
        slack_s=st.sampled_from((0.0, 0.5)),
        error_ratio=st.sampled_from((0.0, 0.5)),
        weights=_weights,
        reweighs=st.integers(0, 6),
    )
)
def test_a_pair_keeps_its_bound_whatever_weights_others_have_and_had(plan: ServicePlan) -> None:
    meter = _played(plan)
    largest_cost_s = max(COSTS_S.values()) * (1 + plan.error_ratio)
    assert meter.widest_excess_s("measured_s", largest_cost_s) <= _rounding_s


def test_two_busy_tenants_are_jointly_backlogged_and_served_alike() -> None:
    meters = [_played(ServicePlan(seed, tenants=2, slack_s=0.0, error_ratio=0.5)) for seed in range(10)]
    joint = [moment for meter in meters for moment in meter.moments if len(moment.backlogged) == 2]
    assert len(joint) > 200
    assert max(meter.widest_gap_s("measured_s") / meter.largest_s for meter in meters) > 1.0
