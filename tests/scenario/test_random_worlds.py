"""Laws that hold in any world: random graphs, workers that die, calls that fail, users who interrupt."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comfyserverless.scheduling.config import POLICY_NAMES
from comfyserverless.scheduling.state import SchedulingState
from tests.support.scheduling_world import World, WorldPlan

_ratios = st.sampled_from((0.0, 0.1, 0.4))
_plans = st.builds(
    WorldPlan,
    seed=st.integers(0, 2**32 - 1),
    tenants=st.integers(1, 4),
    runs=st.integers(1, 10),
    run_size=st.integers(1, 10),
    workers=st.integers(1, 4),
    gpu_slots=st.integers(1, 2),
    slack_s=st.sampled_from((0.0, 0.5, 5.0)),
    callback_ratio=st.sampled_from((0.0, 0.5)),
    loss_ratio=st.sampled_from((0.0, 0.5, 0.9)),
    fail_ratio=_ratios,
    interrupt_ratio=_ratios,
    foreign_need_ratio=_ratios,
    starve_ratio=_ratios,
    room_ratio=_ratios,
    step_ratio=st.sampled_from((0.0, 0.6)),
    checkpoint_steps=st.sampled_from((0, 1, 2, 3, None)),
    bad_checkpoint_ratio=st.sampled_from((0.0, 0.3)),
    max_attempts=st.sampled_from((1, 2, 100)),
    policy=st.sampled_from(("vtime", *POLICY_NAMES)),
    priority_ratio=_ratios,
    reweigh_ratio=_ratios,
    grace_s=st.sampled_from((0.0, 2.0)),
)
_calm_plans = st.builds(
    WorldPlan,
    seed=st.integers(0, 2**32 - 1),
    workers=st.integers(1, 3),
    gpu_slots=st.integers(1, 2),
    callback_ratio=st.sampled_from((0.0, 0.6)),
    loss_ratio=st.sampled_from((0.0, 0.5, 0.8)),
    starve_ratio=st.sampled_from((0.0, 0.3)),
    room_ratio=st.sampled_from((0.0, 0.3)),
    foreign_need_ratio=_ratios,
    step_ratio=st.sampled_from((0.0, 0.6)),
    checkpoint_steps=st.sampled_from((0, 1, 2, 3, None)),
    bad_checkpoint_ratio=st.sampled_from((0.0, 0.3)),
    policy=st.sampled_from(("vtime", *POLICY_NAMES)),
    priority_ratio=_ratios,
    reweigh_ratio=_ratios,
    grace_s=st.sampled_from((0.0, 2.0)),
)
_patient = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@_patient
@given(_plans)
def test_every_world_keeps_the_laws_and_leaves_nothing_behind(plan: WorldPlan) -> None:
    world = World(plan)
    world.play()
    world.unpin_everything()
    assert not world.state.table.records
    assert not world.state.table.runs
    assert not world.results
    assert not world.executions
    assert not world.saved
    assert all(not worker.results for worker in world.state.pool.workers.values())


@_patient
@given(_calm_plans)
def test_every_invocation_is_done_in_the_end_however_many_workers_die(plan: WorldPlan) -> None:
    world = World(plan)
    world.play()
    assert {run.outcome for run in world.runs.values()} == {"success"}


@_patient
@given(_plans)
def test_the_same_events_give_the_same_instructions(plan: WorldPlan) -> None:
    world = World(replace(plan, reweigh_ratio=0.0))  # weights are no events
    world.play()
    again = SchedulingState(world.config)
    assert [again.handle(event) for event in world.events] == world.answers
