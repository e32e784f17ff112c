"""The pool between links, processes and dispatcher."""

from __future__ import annotations

from pathlib import Path

import msgspec

from comfyserverless.control.workers.describing import Joined, describe
from comfyserverless.control.workers.pool import WorkerPool
from comfyserverless.control.workers.processes import Slot
from comfyserverless.control.workers.scratch import Scratch
from comfyserverless.core import messages as wire
from comfyserverless.core.config import WorkerConfig
from comfyserverless.core.ids import WorkerId
from comfyserverless.core.memory import (
    ArenaMemory,
    DeviceMemory,
    HostMemory,
    MemoryCounters,
    MemoryPicture,
    ModelMemory,
)
from comfyserverless.core.modelfn import BUILTIN_FUNCTIONS
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
