"""How many workers there are, what each gets, and which are killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from comfyserverless.control.workers.processes import WorkerProcesses, check_sizes, plan_slots
from comfyserverless.control.workers.scratch import Scratch
from comfyserverless.core.config import WorkerConfig
from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import WorkerId


@pytest.mark.parametrize(
    ("config", "gpus", "cores", "devices", "threads"),
    [
        (WorkerConfig(), 0, 2, [None], 1),
        (WorkerConfig(), 0, 9, [None], 8),
        (WorkerConfig(workers=2), 0, 9, [None, None], 4),
        (WorkerConfig(workers=4), 0, 2, [None] * 4, 1),
        (WorkerConfig(), 3, 16, [0, 1, 2], 5),
        (WorkerConfig(workers=4), 2, 16, [0, 1, 0, 1], 3),
        (WorkerConfig(threads=6), 0, 2, [None], 6),
    ],
)
def test_workers_share_devices_and_cores(
    config: WorkerConfig, gpus: int, cores: int, devices: list[int | None], threads: int
) -> None:
    slots, each = plan_slots(config, gpus, cores)
    assert [slot.device_index for slot in slots] == devices
    assert [slot.name for slot in slots] == [f"w{index}" for index in range(len(devices))]
    assert each == threads


def test_workers_that_were_silent_for_too_long_are_killed_also_before_their_first_word(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    processes = WorkerProcesses(WorkerConfig(workers=4), "unix:none", scratch, lambda _: None)
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in processes.slots[:3]]
    try:
        for slot, sleeper in zip(processes.slots, sleepers, strict=False):
            slot.worker, slot.pid, slot.started_at_s = WorkerId(f"{slot.name}.0"), sleeper.pid, 100.0
        processes.kill_silent({WorkerId("w1.0"): 101.0, WorkerId("w2.0"): 300.0}, since_s=200.0)
        assert [sleeper.wait(5) for sleeper in sleepers[:2]] == [-9, -9]
        assert sleepers[2].poll() is None
        processes.kill_silent({WorkerId("w2.0"): 300.0}, since_s=50.0)
        assert sleepers[2].poll() is None
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
        scratch.close()


def test_sizes_that_the_machine_lacks_are_refused_before_anything_is_made() -> None:
    check_sizes(WorkerConfig(workers=2, arena_bytes=64 << 20))
    with pytest.raises(ConfigError, match="--arena-memory"):
        check_sizes(WorkerConfig(workers=2, arena_bytes=1 << 50))


async def test_stopping_removes_arenas_from_memory_and_from_disk(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    processes = WorkerProcesses(WorkerConfig(workers=1), "unix:none", scratch, lambda _: None)
    arenas = [tmp_path / "memory.arena", tmp_path / "disk.arena"]
    arenas[1].write_bytes(b"x")
    processes.slots[0].arena_paths = tuple(arenas)
    await processes.stop()
    assert not any(path.exists() for path in arenas)
    scratch.close()
