"""Calls that wait for room in a full arena."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from comfyserverless.control.results import ResultTable
from comfyserverless.control.workers import room
from comfyserverless.control.workers.room import RoomQueue
from comfyserverless.core.ids import DEFAULT_TENANT, InvocationId, NodeId, PromptId, TensorId, WorkerId
from comfyserverless.core.values import TensorRef
from comfyserverless.scheduling.events import InvocationSpec

W0, W1 = WorkerId("w0.0"), WorkerId("w1.0")


class Bench:
    """A queue beside results of 100 bytes each."""

    def __init__(self) -> None:
        self.results = ResultTable()
        self.let_in: list[str] = []
        self.queue = RoomQueue(self.results, self.let_in.extend)

    def hold(self, name: str, worker: WorkerId = W0, tensor: str = "") -> None:
        ref = TensorRef(TensorId(tensor or name), (25,), "float32", 100, worker, 0)
        self.results.put(InvocationId(name), {"out": ref})

    def drop(self, name: str) -> None:
        for worker in self.results.drop(InvocationId(name)):
            self.queue.freed(worker)

    def admit(self, name: str, *needs: str, worker: WorkerId = W0) -> bool:
        return self.queue.admit(spec(name, *needs), worker)


def spec(name: str, *needs: str) -> InvocationSpec:
    needed = tuple(InvocationId(need) for need in needs)
    return InvocationSpec(
        InvocationId(name), PromptId("run"), DEFAULT_TENANT, NodeId("1"), "f", "gpu", "f", needed
    )


async def test_tensor_that_several_results_mention_is_held_once() -> None:
    bench = Bench()
    bench.hold("a", tensor="shared")
    bench.hold("b", tensor="shared")
    bench.hold("c", W1)
    assert bench.results.bytes_on(W0) == 100
    assert bench.results.bytes_on(W0, [InvocationId("c"), InvocationId("lost")]) == 0


async def test_nobody_waits_for_its_own_inputs() -> None:
    bench = Bench()
    bench.hold("a")
    assert not bench.admit("x", "a")
    assert not bench.admit("x", worker=W1)
    bench.hold("b")
    assert bench.admit("x", "a")


async def test_little_that_is_given_back_lets_nobody_in() -> None:
    bench = Bench()
    for number in range(20):
        bench.hold(f"r{number}")
    assert bench.admit("x")
    bench.drop("r0")
    bench.drop("r1")
    assert bench.let_in == []
    bench.drop("r2")
    assert bench.let_in == ["x"]
    assert len(bench.queue) == 0


async def test_loss_of_a_worker_lets_in_what_waits_there() -> None:
    bench = Bench()
    bench.hold("a")
    bench.hold("b", W1)
    assert bench.admit("x")
    assert bench.admit("y", worker=W1)
    bench.queue.lost(W1)
    assert bench.let_in == ["y"]


async def test_first_one_runs_once_more_when_nothing_happens_and_then_no_more() -> None:
    bench = Bench()
    bench.hold("a")
    assert bench.admit("x")
    assert bench.admit("y")
    seen = bench.queue._moves
    bench.queue.moved()
    bench.queue._look(seen)
    assert bench.let_in == []
    bench.queue._look(bench.queue._moves)
    assert bench.let_in == ["x"]
    assert not bench.admit("x")


async def test_look_at_what_waits_is_repeated_by_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_PATIENCE_S", 0.001)
    let_in: asyncio.Queue[Sequence[str]] = asyncio.Queue()
    bench = Bench()
    bench.queue = RoomQueue(bench.results, let_in.put_nowait)
    bench.hold("a")
    assert bench.admit("x")
    assert bench.admit("y")
    async with asyncio.timeout(60):
        assert [await let_in.get(), await let_in.get()] == [["x"], ["y"]]


async def test_call_that_runs_goes_on_from_where_it_is_and_is_not_let_in_again() -> None:
    bench = Bench()
    for name in "abc":
        bench.hold(name)
    waiting = asyncio.create_task(bench.queue.wait(spec("x"), W0))
    await asyncio.sleep(0)
    assert not waiting.done()
    bench.drop("a")
    assert await waiting
    assert (bench.let_in, len(bench.queue)) == ([], 0)


async def test_call_that_runs_tries_once_more_when_nothing_happens_and_then_no_more() -> None:
    bench = Bench()
    bench.hold("a")
    waiting = asyncio.create_task(bench.queue.wait(spec("x"), W0))
    await asyncio.sleep(0)
    bench.queue._look(bench.queue._moves)
    assert await waiting
    assert not await bench.queue.wait(spec("x"), W0)


async def test_call_that_was_stopped_waits_no_more() -> None:
    bench = Bench()
    bench.hold("a")
    bench.hold("b")
    waiting = asyncio.create_task(bench.queue.wait(spec("x"), W0))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert len(bench.queue) == 0
    bench.drop("a")
