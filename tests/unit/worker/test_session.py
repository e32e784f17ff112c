from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch

from comfyserverless.core import messages as wire
from comfyserverless.core.ids import InvocationId, WorkerId
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.worker import reporting
from comfyserverless.worker.link import Link, LinkLost, dial
from comfyserverless.worker.session import Parts, Worker
from tests.support.link_server import LinkServer, WorkerLink, serve_links
from tests.unit.worker.functions import Double, Gate, Recorded


class Bench:
    """A worker on a thread of this process, and its link."""

    def __init__(self, tmp_path: Path, server: LinkServer) -> None:
        self.arena = SharedMemoryArena(str(tmp_path / "w0.0"), 1 << 20)
        self.store = TensorStore(WorkerId("w0.0"), self.arena)
        self.pool = Recorded()
        self.gate = Gate()
        functions = {function.name: function for function in (Double(), self.gate)}
        cpu = torch.device("cpu")
        self.parts = Parts(WorkerId("w0.0"), "secret", cpu, functions, self.arena, self.store, self.pool)
        self._server = server
        self.link: WorkerLink

    def _serve(self) -> None:
        with dial(self._server.address) as connection:
            Worker(self.parts, Link(connection)).serve()

    async def start(self) -> None:
        self.served = asyncio.create_task(asyncio.to_thread(self._serve))
        self.link = await self._server.joined("w0.0")


@pytest_asyncio.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(reporting, "INTERVAL_S", 0.02)
    async with serve_links(tmp_path / "link") as server:
        bench = Bench(tmp_path, server)
        await bench.start()
        try:
            yield bench
        finally:
            bench.gate.opened.set()
            if not bench.served.done():
                await bench.link.send(wire.Shutdown())
                await bench.served
            bench.arena.close()


async def test_worker_says_who_it_is(bench: Bench) -> None:
    hello = bench.link.hello
    assert (hello.version, hello.worker, hello.token) == (wire.LINK_VERSION, "w0.0", "secret")
    assert hello.lanes == {"gpu": 1, "cpu": 1}
    assert {spec.name for spec in hello.functions} == {"test.double", "test.gate"}
    assert (hello.device.kind, hello.device.index) == ("cpu", None)
    assert hello.device.total_bytes > hello.device.free_bytes > 0
    assert (hello.arena_path, hello.arena_bytes) == (bench.arena.path, 1 << 20)


async def test_worker_runs_an_invocation_and_frees_its_result(bench: Bench) -> None:
    ref = bench.store.put(torch.ones(4))
    outputs = await bench.link.run("i1", "test.double", x=ref)
    assert torch.equal(bench.store.get(outputs["y"]), torch.full((4,), 2.0))
    await bench.link.send(wire.FreeTensors((ref.id, outputs["y"].id)))
    await bench.link.run("i2", "test.double", x=3)
    assert bench.store.used_bytes == 0


async def test_worker_cancels_a_running_invocation(bench: Bench) -> None:
    await bench.link.submit("i1", "test.gate")
    assert await asyncio.to_thread(bench.gate.started.wait, 60)
    await bench.link.send(wire.CancelInvocation(InvocationId("i1")))
    await bench.link.submit("i2", "test.double", lane="gpu", x=1)
    assert isinstance(await bench.link.expect(wire.InvocationDone), wire.InvocationDone)
    bench.gate.opened.set()
    assert (await bench.link.expect(wire.InvocationCancelled)).invocation == "i1"
    assert bench.store.used_bytes == 0


async def test_peer_arena_that_ends_stays_readable_for_earlier_work(bench: Bench, tmp_path: Path) -> None:
    arena = SharedMemoryArena(str(tmp_path / "w1.0"), 1 << 16)
    peer = TensorStore(WorkerId("w1.0"), arena)
    ref = peer.put(torch.ones(3))
    await bench.link.send(wire.PeerArena(WorkerId("w1.0"), arena.path, arena.size_bytes))
    await bench.link.run("i0", "test.double", x=ref)  # the arena is mapped when this is answered
    await bench.link.submit("i1", "test.gate")
    await bench.link.submit("i2", "test.double", x=ref)
    await bench.link.send(wire.PeerArena(WorkerId("w1.0"), "", 0))
    arena.close()
    await bench.link.submit("i3", "test.double", x=ref)
    bench.gate.opened.set()
    assert (await bench.link.expect(wire.InvocationDone)).invocation == "i1"
    done = await bench.link.expect(wire.InvocationDone)
    assert done.invocation == "i2"
    assert done.timing.transfer_s > 0
    failed = await bench.link.expect(wire.InvocationFailed)
    assert (failed.invocation, failed.exception_type) == ("i3", "LostTensor")


async def test_peer_arena_that_cannot_be_mapped_is_no_end(bench: Bench, tmp_path: Path) -> None:
    await bench.link.send(wire.PeerArena(WorkerId("w1.0"), str(tmp_path / "gone"), 1))
    assert (await bench.link.run("i1", "test.double", x=2))["y"] == 4


async def test_worker_unloads_models_when_told(bench: Bench) -> None:
    await bench.link.send(wire.UnloadModels())
    await bench.link.run("i1", "test.double", lane="gpu", x=2)
    assert bench.pool.unloads == 1


async def test_statistics_tell_the_weights_since_the_latest_load(bench: Bench) -> None:
    await bench.link.run("i1", "test.double", lane="gpu", x=2)
    while (stats := await bench.link.expect(wire.WorkerStats)).weights_bytes == 0:
        pass
    assert stats.weights_bytes == 77


async def test_worker_reports_its_memory(bench: Bench) -> None:
    ref = bench.store.put(torch.zeros(1000))
    stats = await bench.link.expect(wire.WorkerStats)
    while stats.arena_used_bytes == 0 or stats.memory is None or stats.memory.link_s is None:
        stats = await bench.link.expect(wire.WorkerStats)
    assert stats.arena_used_bytes == 4096
    assert stats.arena_bytes == 1 << 20
    assert stats.resident_bytes > 10 << 20
    assert ref.size_bytes == 4000
    assert stats.memory.link_s > 0


async def test_shutdown_finishes_what_runs(bench: Bench) -> None:
    await bench.link.submit("i1", "test.gate")
    assert await asyncio.to_thread(bench.gate.started.wait, 60)
    await bench.link.send(wire.Shutdown())
    bench.gate.opened.set()
    assert (await bench.link.expect(wire.InvocationDone)).invocation == "i1"
    await bench.served


async def test_lost_link_ends_the_service(bench: Bench) -> None:
    await bench.link.socket.close()
    with pytest.raises(LinkLost):
        await bench.served


async def test_nobody_at_the_address_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        dial(f"unix:{tmp_path / 'nothing'}")
