"""The pool between links, processes and dispatcher."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from comfyserverless.control.files import FolderPaths
from comfyserverless.control.hosting.host import PackHost
from comfyserverless.control.workers.describing import Joined, describe
from comfyserverless.control.workers.pool import WorkerPool
from comfyserverless.control.workers.processes import Slot
from comfyserverless.control.workers.scratch import Scratch
from comfyserverless.core import messages as wire
from comfyserverless.core.config import EngineConfig, Folders, WorkerConfig
from comfyserverless.core.errors import InvariantError
from comfyserverless.core.ids import InvocationId, WorkerId
from comfyserverless.core.memory import (
    ArenaMemory,
    DeviceMemory,
    HostMemory,
    MemoryCounters,
    MemoryPicture,
    ModelMemory,
)
from comfyserverless.core.modelfn import BUILTIN_FUNCTIONS, HOST_FUNCTIONS
from comfyserverless.scheduling.state import SchedulingConfig

WORKER = WorkerId("w0.0")
HELLO = wire.Hello(
    version=wire.LINK_VERSION,
    worker=WORKER,
    token="t",
    pid=1,
    lanes={"gpu": 1, "cpu": 1},
    functions=tuple(BUILTIN_FUNCTIONS.values()),
    device=wire.DeviceInfo("cpu", "cpu", None, 1, 1),
    torch_version="2",
    arena_path="/nowhere",
    arena_bytes=1,
)
MODEL = ModelMemory("a.safetensors", "unet", "", 4, ((0, 3),), (), 2, False, 100, 77)
STATS = wire.WorkerStats(1, 2, 3, 4, 5)


async def test_what_a_worker_sent_before_its_process_ended_may_come_after_its_loss(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    lost: list[WorkerId] = []

    def let_go(worker: WorkerId) -> bool:
        lost.append(worker)
        return False

    pool = WorkerPool(WorkerConfig(workers=1), SchedulingConfig(slack_s=1.0), scratch, let_go)
    pool.joined(HELLO)
    pool.received(WORKER, STATS)
    pool.lost(WORKER)
    pool.received(WORKER, STATS)
    pool.lost(WORKER)
    assert lost == [WORKER]
    scratch.close()


def test_models_that_are_not_told_again_stay_as_they_were() -> None:
    joined = Joined(HELLO, None, 0.0)
    for models in ((MODEL,), None):
        memory = MemoryPicture(
            DeviceMemory(9, 7), HostMemory(), ArenaMemory(), MemoryCounters(), models, 0, 0.001
        )
        joined.note(msgspec.structs.replace(STATS, memory=memory))
        shown = describe(Slot("w0", None, WORKER), joined, ()).memory
        assert shown is not None
        assert shown.models == (MODEL,)


def pool_with_host(scratch: Scratch, base: Path) -> tuple[WorkerPool, PackHost]:
    """Return a pool whose node host was started."""
    folders = Folders(base, (), base, base, base, base, base)
    host = PackHost(EngineConfig(folders), FolderPaths(folders), scratch.folder)
    pool = WorkerPool(WorkerConfig(workers=1), SchedulingConfig(slack_s=1.0), scratch, lambda _: False, host)
    slot = pool._processes.host
    assert slot is not None
    slot.worker = WorkerId("host.0")
    return pool, host


HOST_HELLO = msgspec.structs.replace(
    HELLO,
    worker=WorkerId("host.0"),
    lanes={"pack": 1, "async": 16},
    functions=tuple(HOST_FUNCTIONS.values()),
)


async def test_node_host_is_no_worker_to_those_who_count_them(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    pool, host = pool_with_host(scratch, tmp_path)
    pool.joined(HOST_HELLO)
    assert host.worker == "host.0"
    assert not pool.has_workers
    assert not pool.has_joined.is_set()
    assert pool.slot_count == 1
    assert [view.slot for view in pool.views()] == ["w0"]
    pool.joined(HELLO)
    assert pool.has_workers
    pool.lost(WorkerId("host.0"))
    assert host.worker is None
    assert pool.has_workers
    scratch.close()


async def test_node_host_that_declares_functions_of_workers_is_refused(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    pool, _ = pool_with_host(scratch, tmp_path)
    with pytest.raises(InvariantError, match="other ports"):
        pool.joined(msgspec.structs.replace(HOST_HELLO, functions=HELLO.functions))
    scratch.close()


async def test_node_that_nobody_waits_for_may_go_on_for_longer_than_a_step(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    pool, _ = pool_with_host(scratch, tmp_path)
    late: dict[float, dict[WorkerId, InvocationId]] = {
        20.0: {WORKER: InvocationId("step"), WorkerId("host.0"): InvocationId("node")},
        60.0: {},
    }
    assert pool.overdue(late.__getitem__) == {WORKER: "step"}
    late[60.0] = {WorkerId("host.0"): InvocationId("node")}
    assert set(pool.overdue(late.__getitem__)) == {WORKER, "host.0"}
    scratch.close()
