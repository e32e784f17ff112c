"""What a run holds of its results while it goes on, seen from the messages to its only worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from comfyserverless.control.accounts.account import Account
from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.control.accounts.tenants import Tenants
from comfyserverless.control.dispatch import NO_ROOM
from comfyserverless.control.engine import Engine
from comfyserverless.control.files import FolderPaths
from comfyserverless.control.views import RunStatus, SubmitRequest
from comfyserverless.core import messages as wire
from comfyserverless.core import values
from comfyserverless.core.config import EngineConfig, Folders, WorkerConfig
from comfyserverless.core.ids import TenantId, TensorId, WorkerId
from comfyserverless.core.values import TensorRef
from tests.support.tenants import FixedAccounts

ALICE = TenantId("alice")
WORKER, OTHER = WorkerId("w0.0"), WorkerId("w0.1")
CHAIN: dict[str, Any] = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": 0}},
    "2": {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}},
    "3": {"class_type": "ImageInvert", "inputs": {"image": ["2", 0]}},
    "4": {"class_type": "PreviewImage", "inputs": {"images": ["3", 0]}},
}


class Worker:
    """A worker that does what the test says, one call at a time."""

    def __init__(self, engine: Engine) -> None:
        self._dispatcher = engine._pool.dispatcher
        self._dispatcher._send = self._take
        self.calls: list[wire.RunInvocation] = []
        self.freed: list[str] = []

    def join(self, worker: WorkerId = WORKER) -> None:
        self._dispatcher.worker_joined(worker, {"cpu": 1, "gpu": 1})

    def lose(self, worker: WorkerId) -> None:
        """Lose the worker as the pool does."""
        self._dispatcher._make_room(worker)
        self._dispatcher.worker_lost(worker)

    def _take(self, _: WorkerId, message: wire.ToWorker) -> None:
        if isinstance(message, wire.RunInvocation):
            self.calls.append(message)
        elif isinstance(message, wire.FreeTensors):
            self.freed += message.tensors

    async def finish(self, at: int, worker: WorkerId = WORKER, arena: WorkerId = WORKER) -> None:
        """Finish the call number `at`, as `worker`; its result is in the arena of another, if one is named."""
        await turn_until(lambda: len(self.calls) > at)
        call = self.calls[at]
        ref = TensorRef(TensorId(f"t{at}"), (1, 64, 64, 3), "float32", 49152, arena, 0)
        done = wire.InvocationDone(call.invocation, values.encode({"image": ref, "images": ref}), wire.Timing())
        self._dispatcher.done(worker, done)
        await settle()

    async def fail_for_room(self, at: int) -> None:
        await turn_until(lambda: len(self.calls) > at)
        failure = wire.InvocationFailed(self.calls[at].invocation, NO_ROOM, "full", (), wire.Timing())
        self._dispatcher.failed(WORKER, failure)
        await settle()


async def turn_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if condition():
                return
            await asyncio.sleep(0)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    given, output, temp, user = (tmp_path / name for name in ("input", "output", "temp", "user"))
    folders = Folders(tmp_path, (), given, output, temp, user, tmp_path / "nodes")
    tenants = Tenants(FolderPaths(folders), AccountBook(FixedAccounts(Account(ALICE))))
    made = Engine(EngineConfig(folders, WorkerConfig(workers=1), database="memory"), tenants)
    yield made
    await made.stop()


async def test_call_without_room_gets_that_of_results_which_no_node_reads_any_more(engine: Engine) -> None:
    worker = Worker(engine)
    worker.join()
    await engine.submit(SubmitRequest(CHAIN, ALICE))
    await worker.finish(0)
    await worker.finish(1)
    assert worker.freed == []
    await worker.fail_for_room(2)
    assert worker.freed == ["t0"], "node 1 was read by node 2 and is only kept for the next prompt"
    assert worker.calls[3].invocation == worker.calls[2].invocation
    assert [record.status for record in engine.running(ALICE)] == [RunStatus.RUNNING]


async def test_results_that_no_node_reads_any_more_are_not_made_again_for_a_lost_worker(engine: Engine) -> None:
    worker = Worker(engine)
    worker.join(OTHER)
    worker.join()
    await engine.submit(SubmitRequest(CHAIN, ALICE))
    await worker.finish(0, OTHER, arena=OTHER)
    await worker.finish(1, OTHER, arena=WORKER)
    worker.lose(OTHER)
    await settle()
    assert len(worker.calls) == 3, "the last one runs beside its input, and that was made from what is lost"


async def test_next_prompt_makes_what_was_let_go_and_nothing_stays_behind(engine: Engine) -> None:
    worker = Worker(engine)
    worker.join()
    await engine.submit(SubmitRequest(CHAIN, ALICE))
    await worker.finish(0)
    await worker.finish(1)
    await worker.fail_for_room(2)
    assert engine.interrupt(None, ALICE)
    await turn_until(lambda: not engine.running(ALICE))
    await worker.finish(3)
    await engine.submit(SubmitRequest(CHAIN, ALICE))
    await turn_until(lambda: len(worker.calls) == 5)
    assert worker.calls[4].function == worker.calls[0].function
