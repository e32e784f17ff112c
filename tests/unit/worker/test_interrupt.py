"""Interrupts on a lane: a model stops within a layer, and the next job is whole."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from comfyserverless.core import messages as wire
from comfyserverless.core import values
from comfyserverless.core.ids import InvocationId, WorkerId
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.sdk.modelfn import IoSetup, ModelFn
from comfyserverless.worker.execution import Execution
from comfyserverless.worker.lanes import Lanes
from tests.unit.models.resident.stacks import Stack, expect
from tests.unit.worker.functions import Recorded

LAYERS = 40
X = torch.ones(2, 16)


class Slow(ModelFn):
    """Run a stack; a call that is held begins layers as it is let."""

    name = "test.slow"

    def __init__(self, folder: Path) -> None:
        stack = Stack(folder, room=LAYERS, layers=LAYERS)
        self.expected = expect(stack.write("slow", 0), X)
        self.runner = stack.runner("slow")
        self.is_held = False
        self.permits = threading.Semaphore(0)
        self.started: queue.SimpleQueue[int] = queue.SimpleQueue()
        with self.runner.running() as module:
            for number, layer in enumerate(module):
                layer.register_forward_hook(lambda *_, number=number: self._pause(number))

    def _pause(self, number: int) -> None:
        self.started.put(number)
        if self.is_held:
            assert self.permits.acquire(timeout=60)

    def begun(self) -> list[int]:
        """List the layers that have begun since the last call, those of later jobs last."""
        return [self.started.get() for _ in range(self.started.qsize())]

    def setup_io(self, io: IoSetup) -> None:
        io.add_input("is_held")
        io.add_output("y")

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        self.is_held = inputs["is_held"]
        with self.runner.running() as module:
            return {"y": module(X)}


class Lane:
    """A worker's lane around the slow model."""

    def __init__(self, folder: Path) -> None:
        self.slow = Slow(folder)
        self.store = TensorStore(WorkerId("w0.0"), SharedMemoryArena(str(folder / "arena"), 1 << 20))
        execution = Execution({self.slow.name: self.slow}, self.store, Recorded(), lambda _: None)
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.lanes = Lanes({"gpu": 1}, execution.run, self.answers.put, lambda _: None)

    def submit(self, name: str, *, is_held: bool = False) -> None:
        inputs = values.encode({"is_held": is_held})
        self.lanes.submit(wire.RunInvocation(InvocationId(name), self.slow.name, "gpu", inputs))

    def result(self, answer: Any) -> torch.Tensor:
        assert isinstance(answer, wire.InvocationDone)
        return self.store.get(values.decode(answer.outputs)["y"])


@pytest.fixture
def lane(tmp_path: Path) -> Iterator[Lane]:
    lane = Lane(tmp_path)
    yield lane
    lane.lanes.stop()
    lane.store.close()


def test_a_running_model_stops_within_a_layer_and_the_next_job_is_whole(lane: Lane) -> None:
    lane.submit("warm")
    assert torch.equal(lane.result(lane.answers.get(timeout=60)), lane.slow.expected)
    lane.slow.begun()
    lane.submit("slow", is_held=True)
    lane.submit("next")
    lane.slow.permits.release(3)
    while lane.slow.started.get(timeout=60) < 3:
        pass
    lane.lanes.cancel(InvocationId("slow"))
    lane.slow.permits.release(LAYERS)
    answer = lane.answers.get(timeout=60)
    assert isinstance(answer, wire.InvocationCancelled)
    assert answer.invocation == "slow"
    assert torch.equal(lane.result(lane.answers.get(timeout=60)), lane.slow.expected)
    begun = lane.slow.begun()
    assert begun[: begun.index(0)] in ([], [4]), "of forty layers"


def test_a_cancellation_that_comes_late_does_not_reach_the_next_job(lane: Lane) -> None:
    for name in ("a", "b"):
        lane.submit(name)
        assert isinstance(lane.answers.get(timeout=60), wire.InvocationDone)
        lane.lanes.cancel(InvocationId(name))
