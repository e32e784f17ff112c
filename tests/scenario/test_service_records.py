"""Stories about what is told of service: every stay in a lane once, as it was charged."""

from __future__ import annotations

import pytest

from tests.support.scheduling import Story


def test_a_stay_tells_how_long_it_queued_and_held_the_lane_and_what_it_cost() -> None:
    story = Story()
    story.join()
    story.submit("first")
    story.submit("second", tenant="B")
    story.now_s = 3.0
    story.finish("first", compute_s=2.5)
    story.now_s = 5.0
    story.finish("second", compute_s=1.5)
    first, second = story.services
    assert (first.outcome, first.queued_s, first.held_s, first.charged_s) == ("done", 0.0, 3.0, 2.5)
    assert (second.outcome, second.queued_s, second.held_s, second.charged_s) == ("done", 3.0, 2.0, 1.5)


def test_a_lost_stay_is_told_with_what_its_tenant_is_charged() -> None:
    story = Story(default_cost_s=4.0)
    story.join()
    story.submit("step")
    story.now_s = 1.5
    story.lose()
    (lost,) = story.services
    assert (lost.outcome, lost.held_s, lost.charged_s, lost.timing.total_s()) == ("lost", 1.5, 1.5, 0.0)


def test_what_is_told_adds_up_to_the_service_of_the_tenant() -> None:
    story = Story(default_cost_s=4.0)
    story.join("w1")
    for name in ("a", "b", "c"):
        story.submit(name)
    story.now_s = 1.0
    story.lose("w1")
    story.join("w2")
    for name in ("a", "b", "c"):
        story.now_s += 2.0
        story.finish(name, compute_s=1.25)
    told_s = sum(service.charged_s for service in story.services)
    assert told_s == pytest.approx(story.state.ledger.service_s("A")["gpu"]) == pytest.approx(1.0 + 3 * 1.25)
