from __future__ import annotations

import threading
from queue import SimpleQueue

import pytest

from comfyserverless.core.ids import InvocationId
from comfyserverless.core.messages import FromWorker, InvocationCancelled, InvocationDone, RunInvocation, Timing
from comfyserverless.core.modelfn import Lane
from comfyserverless.worker.lanes import Lanes, Ticket


def call(name: str, lane: Lane = "cpu") -> RunInvocation:
    return RunInvocation(InvocationId(name), "test", lane, b"")


class Bench:
    """Lanes whose steps wait for permission; `late` makes cancellation come after the result."""

    def __init__(self) -> None:
        self.answers: SimpleQueue[FromWorker] = SimpleQueue()
        self.started: SimpleQueue[str] = SimpleQueue()
        self.permits = threading.Semaphore(0)
        self.ended: list[str] = []
        self.lanes = Lanes({"gpu": 1, "cpu": 1}, self._step, self.answers.put, self.ended.append)

    def _step(self, run: RunInvocation, ticket: Ticket) -> FromWorker:
        self.started.put(run.invocation)
        assert self.permits.acquire(timeout=60)
        if ticket.commit():
            return InvocationDone(run.invocation, b"", Timing())
        return InvocationCancelled(run.invocation, Timing(compute_s=1.0))

    def next_answer(self) -> FromWorker:
        return self.answers.get(timeout=60)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_lane_runs_in_the_order_of_arrival(bench: Bench) -> None:
    for name in "abc":
        bench.lanes.submit(call(name))
        bench.permits.release()
    done = [InvocationDone(InvocationId(name), b"", Timing()) for name in "abc"]
    assert [bench.next_answer() for _ in "abc"] == done
    bench.lanes.stop()
    assert bench.ended == ["a", "b", "c"]


def test_lanes_do_not_wait_for_each_other(bench: Bench) -> None:
    bench.lanes.submit(call("slow", "gpu"))
    bench.lanes.submit(call("quick", "cpu"))
    assert {bench.started.get(timeout=60), bench.started.get(timeout=60)} == {"slow", "quick"}
    bench.permits.release(2)
    bench.lanes.stop()


def test_queued_invocation_is_cancelled_at_once_and_never_runs(bench: Bench) -> None:
    bench.lanes.submit(call("a"))
    assert bench.started.get(timeout=60) == "a"
    bench.lanes.submit(call("b"))
    bench.lanes.cancel(InvocationId("b"))
    assert bench.next_answer() == InvocationCancelled(InvocationId("b"), Timing())
    assert bench.lanes.open_invocations() == ["a"]
    bench.permits.release()
    assert isinstance(bench.next_answer(), InvocationDone)
    bench.lanes.stop()
    assert bench.started.empty()


def test_running_invocation_that_is_cancelled_is_finished_and_dropped(bench: Bench) -> None:
    bench.lanes.submit(call("a"))
    assert bench.started.get(timeout=60) == "a"
    bench.lanes.cancel(InvocationId("a"))
    assert bench.answers.empty()
    bench.permits.release()
    assert bench.next_answer() == InvocationCancelled(InvocationId("a"), Timing(compute_s=1.0))
    bench.lanes.stop()


def test_running_invocation_learns_that_it_is_cancelled() -> None:
    answers: SimpleQueue[FromWorker] = SimpleQueue()
    running = threading.Event()

    def wait_for_cancellation(run: RunInvocation, ticket: Ticket) -> FromWorker:
        running.set()
        while not ticket.is_cancelled():
            assert not threading.Event().wait(0.005)
        return InvocationCancelled(run.invocation, Timing())

    lanes = Lanes({"cpu": 1}, wait_for_cancellation, answers.put, lambda _: None)
    lanes.submit(call("a"))
    assert running.wait(60)
    lanes.cancel(InvocationId("a"))
    assert answers.get(timeout=60) == InvocationCancelled(InvocationId("a"), Timing())
    lanes.stop()


def test_cancel_of_an_answered_or_unknown_invocation_says_nothing(bench: Bench) -> None:
    bench.lanes.submit(call("a"))
    bench.permits.release()
    bench.next_answer()
    bench.lanes.cancel(InvocationId("a"))
    bench.lanes.cancel(InvocationId("never"))
    bench.lanes.stop()
    assert bench.answers.empty()


def test_action_runs_between_invocations_and_its_failure_harms_nobody(bench: Bench) -> None:
    seen: list[str] = []
    bench.lanes.submit(call("a"))
    bench.lanes.call("cpu", lambda: seen.append("ran"))
    bench.lanes.call("cpu", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    bench.lanes.submit(call("b"))
    assert seen == []
    bench.permits.release(2)
    assert [bench.next_answer() for _ in range(2)]
    assert seen == ["ran"]
    bench.lanes.stop()


def test_stop_drops_what_is_queued_and_waits_for_what_runs(bench: Bench) -> None:
    bench.lanes.submit(call("a"))
    assert bench.started.get(timeout=60) == "a"
    bench.lanes.submit(call("b"))
    bench.permits.release(2)
    bench.lanes.stop()
    assert bench.next_answer() == InvocationDone(InvocationId("a"), b"", Timing())
    assert bench.answers.empty() or bench.next_answer() == InvocationDone(InvocationId("b"), b"", Timing())
