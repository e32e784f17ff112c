"""What a stay in a lane is charged."""

from __future__ import annotations

import pytest

from comfyserverless.core.ids import TenantId
from comfyserverless.scheduling.charges import WantedLane
from tests.support.scheduling import Story

A, B = TenantId("A"), TenantId("B")


def test_a_lane_is_wanted_by_others_while_somebody_else_has_ready_work_for_it() -> None:
    lane = WantedLane()
    for seconds, tenants in ((1.0, {}), (2.0, {A: [1]}), (4.0, {B: [2]}), (8.0, {A: [1], B: [2]})):
        lane.pass_time(seconds, tenants)
    assert (lane.by_others_s(A), lane.by_others_s(B)) == (12.0, 10.0)
    assert lane.by_others_s(TenantId("C")) == 14.0


def _waiting_step(story: Story) -> None:
    """Let a step of A wait on w2 for its ControlNet, which runs on w1 and publishes."""
    story.join("w1")
    story.join("w2")
    story.submit("net")
    story.publish("net")
    story.submit("step", callbacks=("net",))
    assert story.worker_of == {"net": "w1", "step": "w2"}


def test_waiting_costs_nothing_while_nobody_else_wants_the_lane() -> None:
    story = Story(overlap_callbacks=True)
    _waiting_step(story)
    story.submit("more")
    story.now_s = 10.0
    story.finish("step", compute_s=1.0, waited_s=9.0)
    assert story.services[-1].charged_s == 1.0
    assert story.state.ledger.waited_s(A)["gpu"] == 9.0


def test_waiting_is_charged_for_as_long_as_another_tenant_wanted_the_lane() -> None:
    story = Story(overlap_callbacks=True)
    _waiting_step(story)
    story.now_s = 6.0
    story.submit("other", run="b", tenant="B")
    story.now_s = 10.0
    story.finish("step", compute_s=1.0, waited_s=9.0)
    assert story.services[-1].charged_s == 1.0 + 4.0
    assert story.state.ledger.service_s(A)["gpu"] == 5.0
    assert story.state.ledger.waited_s(A)["gpu"] == 5.0


def test_no_more_than_the_wait_is_charged_beside_the_service() -> None:
    story = Story(overlap_callbacks=True)
    _waiting_step(story)
    story.submit("other", run="b", tenant="B")
    story.now_s = 10.0
    story.finish("step", compute_s=7.0, waited_s=3.0)
    assert story.services[-1].charged_s == 10.0


@pytest.mark.parametrize(
    ("held_s", "silent_s", "charged_s"),
    [(0.5, 0.5, 0.5), (60.0, 60.0, 2.0), (60.0, 1.0, 59.0), (3.0, 2.5, 2.0)],
)
def test_a_lost_stay_is_charged_while_its_worker_lived_or_up_to_the_estimate(
    held_s: float, silent_s: float, charged_s: float
) -> None:
    story = Story(default_cost_s=2.0)
    story.join()
    story.submit("step")
    story.now_s = held_s
    story.lose(silent_s=silent_s)
    assert story.services[0].charged_s == story.v_time_s("A") == charged_s
