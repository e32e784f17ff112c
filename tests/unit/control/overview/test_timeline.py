"""The timeline keeps what a person can tell apart, however dense the steps are."""

from __future__ import annotations

import pytest

from comfyserverless.control.overview.timeline import GAP_S, KEPT_S, STRETCHES, TOLD, Timeline
from tests.support.metering import stay


def test_steps_that_follow_each_other_closely_are_one_stretch() -> None:
    timeline = Timeline()
    for step in range(100):
        timeline.add(stay(step * 0.01, step * 0.01 + 0.009))
    [stretch] = timeline.since(0)
    assert (stretch.began_s, stretch.calls) == (0.0, 100)
    assert stretch.ended_s == pytest.approx(0.999)
    assert stretch.held_s == pytest.approx(0.9)
    assert stretch.charged_s == pytest.approx(0.9)
    assert stretch.load_s == pytest.approx(0.09)


def test_steps_of_two_tenants_in_turn_are_one_stretch_each() -> None:
    timeline = Timeline()
    for step in range(100):
        timeline.add(stay(step * 0.01, step * 0.01 + 0.01, tenant=("alice", "bob")[step % 2]))
    assert [(each.key.tenant, each.calls) for each in timeline.since(0)] == [("alice", 50), ("bob", 50)]


def test_a_pause_begins_a_new_stretch() -> None:
    timeline = Timeline()
    timeline.add(stay(0.0, 1.0))
    timeline.add(stay(1.0 + GAP_S * 2, 2.0))
    assert [each.began_s for each in timeline.since(0)] == [0.0, 1.0 + GAP_S * 2]


def test_a_failed_call_is_a_stretch_of_its_own() -> None:
    timeline = Timeline()
    timeline.add(stay(0.0, 1.0))
    timeline.add(stay(1.0, 2.0, outcome="lost"))
    assert [each.key.outcome for each in timeline.since(0)] == ["done", "lost"]


def test_who_looked_before_is_told_what_changed_since() -> None:
    timeline = Timeline()
    timeline.add(stay(0.0, 1.0))
    timeline.add(stay(1.0, 2.0, function="vae.decode"))
    seen = timeline.changes
    assert timeline.since(seen) == []
    timeline.add(stay(1.01, 2.01))
    [changed] = timeline.since(seen)
    assert (changed.number, changed.calls) == (1, 2)


def test_old_stretches_are_forgotten() -> None:
    timeline = Timeline()
    timeline.add(stay(0.0, 1.0))
    timeline.add(stay(2.0, 2.0 + KEPT_S))
    assert [each.began_s for each in timeline.since(0)] == [2.0]
    timeline.forget_old(5.0 + 2 * KEPT_S)
    assert len(timeline) == 0


def test_a_stretch_that_was_forgotten_is_not_continued() -> None:
    timeline = Timeline()
    timeline.add(stay(0.0, 1.0))
    timeline.forget_old(1.01 + KEPT_S)
    timeline.add(stay(1.05, 1.1))
    assert [each.calls for each in timeline.since(0)] == [1]


def test_stretches_are_bounded() -> None:
    timeline = Timeline()
    for number in range(STRETCHES + 100):
        timeline.add(stay(0.0, 0.01, function=f"f{number}"))
    assert len(timeline) == STRETCHES
    assert next(iter(timeline._stretches.values())).key.function == "f100"
    assert len(timeline._latest) == STRETCHES


def test_of_too_many_stretches_those_that_held_longest_are_told() -> None:
    timeline = Timeline()
    timeline.add(stay(0.0, 0.5, function="long"))
    seen = timeline.changes
    for number in range(TOLD):
        timeline.add(stay(0.0, 0.02 if number % 8 else 0.2, function=f"f{number}"))
    again = timeline.since(seen)
    assert len(again) == TOLD // 4
    assert {each.key.function for each in again} >= {f"f{number}" for number in range(0, TOLD, 8)}
    assert [each.change for each in again] == sorted(each.change for each in again)
    first = timeline.since(0)
    assert len(first) == TOLD
    assert first[0].key.function == "long"
