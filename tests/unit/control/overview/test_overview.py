"""The overview tells all there is at first, then what is new, from real scheduling."""

from __future__ import annotations

import pytest

from comfyserverless.control.metering.measured import Meter
from comfyserverless.control.overview.overview import Overview
from comfyserverless.core.ids import InvocationId, NodeId, PromptId, TenantId, WorkerId
from comfyserverless.core.messages import Timing
from comfyserverless.scheduling import events
from comfyserverless.scheduling.instructions import RecordService
from comfyserverless.scheduling.state import SchedulingConfig, SchedulingState

ALICE = TenantId("alice")
CALL = events.InvocationSpec(
    InvocationId("p#0/3/0"), PromptId("p#0"), ALICE, NodeId("3"), "denoise.step", "gpu", "denoise.step"
)


class World:
    """Scheduling of one worker, a clock, and the overview of them."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.state = SchedulingState(SchedulingConfig(slack_s=2.0))
        self.meter = Meter()
        self.overview = Overview(self.state, self.meter, lambda: self.now_s)
        self.state.handle(events.WorkerJoined(WorkerId("w0.0"), (("gpu", 1), ("cpu", 2)), 100.0, "w0.0"))

    def submit(self) -> None:
        self.state.handle(events.InvocationSubmitted(CALL, self.now_s, CALL.id))

    def finish(self, compute_s: float) -> None:
        finished = events.InvocationFinished(
            CALL.id, WorkerId("w0.0"), Timing(compute_s=compute_s), (), self.now_s, CALL.id
        )
        for instruction in self.state.handle(finished):
            if isinstance(instruction, RecordService):
                self.meter.record(CALL, instruction, self.now_s)


def test_what_is_in_a_lane_is_told_with_its_start() -> None:
    world = World()
    world.submit()
    world.now_s = 103.0
    [staying] = world.overview.since("").staying
    assert (staying.worker, staying.lane, staying.node, staying.began_s) == ("w0.0", "gpu", "3", 100.0)


def test_sample_and_stretch_of_a_call_agree_with_what_its_tenant_was_charged() -> None:
    world = World()
    world.submit()
    world.now_s = 101.0
    world.finish(0.8)
    world.now_s = 102.0
    world.overview.sample()
    recent = world.overview.since("")
    [sample], [stretch] = recent.samples, recent.stretches
    assert (sample.lanes, sample.shares[0].tenant, sample.shares[0].held_ratio) == (1, "alice", 0.5)
    assert stretch.charged_s == world.overview.v_time_s(ALICE) == pytest.approx(0.8)
    assert world.overview.ahead_s(ALICE) == pytest.approx(0.8)
    assert recent.staying == []


def test_a_second_look_tells_only_what_is_new() -> None:
    world = World()
    world.overview.sample()
    first = world.overview.since("")
    assert first.is_full
    world.overview.sample()
    second = world.overview.since(first.cursor)
    assert not second.is_full
    assert [sample.number for sample in second.samples] == [2]
    assert world.overview.since(second.cursor).samples == []


@pytest.mark.parametrize("cursor", ["", "x", "..", "0.0.0", "deadbeef.3.4", "\u0661.1.1", "9" * 5000])
def test_cursor_of_somebody_else_gets_all_there_is(cursor: str) -> None:
    world = World()
    world.overview.sample()
    recent = world.overview.since(cursor)
    assert recent.is_full
    assert len(recent.samples) == 1


@pytest.mark.parametrize("numbers", ["-1.0", "1", "1.x", "1." + "9" * 5000, "\u00b2.1"])
def test_broken_cursor_with_the_right_mark_is_harmless(numbers: str) -> None:
    world = World()
    mark = world.overview.since("").cursor.partition(".")[0]
    world.overview.since(f"{mark}.{numbers}")
