"""How many workers there are, what each gets, and which are killed."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from comfyserverless.control.workers import processes as module
from comfyserverless.control.workers.processes import WorkerProcesses, check_sizes, plan_slots
from comfyserverless.control.workers.scratch import Scratch
from comfyserverless.core.config import WorkerConfig
from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import WorkerId
from comfyserverless.core.zygote import Exited, Ready, Spawned, SpawnWorker, decode_request


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
        assert [sleeper.wait(60) for sleeper in sleepers[:2]] == [-9, -9]
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


@pytest.mark.parametrize(
    ("gpus", "kind", "is_refused"), [(2, "nvshmem", True), (2, "shared", False), (0, "nvshmem", False)]
)
def test_results_that_leave_no_gpu_memory_to_weights_are_refused_at_start(
    gpus: int, kind: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "count_gpus", lambda: gpus)
    config = WorkerConfig(arena_kind=kind, arena_bytes=256 << 20, device_bytes=300 << 20)
    with pytest.raises(ConfigError, match="--device-memory") if is_refused else nullcontext():
        check_sizes(config)


async def test_stopping_removes_arenas_from_memory_and_from_disk(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    processes = WorkerProcesses(WorkerConfig(workers=1), "unix:none", scratch, lambda _: None)
    arenas = [tmp_path / "memory.arena", tmp_path / "disk.arena"]
    arenas[1].write_bytes(b"x")
    processes.slots[0].arena_paths = tuple(arenas)
    await processes.stop()
    assert not any(path.exists() for path in arenas)
    scratch.close()


class Zygote:
    """Read what a real zygote would be told; its workers are numbers."""

    returncode = None

    def __init__(self) -> None:
        self.stdin = self
        self.spawned: list[SpawnWorker] = []

    def write(self, line: bytes) -> None:
        request = decode_request(line)
        assert isinstance(request, SpawnWorker)
        self.spawned.append(request)

    def places(self) -> list[tuple[str, int, int] | None]:
        """Return (last part of the island's name, rank, ranks) of what was spawned since the last call."""
        spawned, self.spawned = self.spawned, []
        places = [each.island for each in spawned]
        return [place and (place.name.rpartition("-")[2], place.rank, place.ranks) for place in places]


class Island:
    """Worker processes that are to be an island of two."""

    def __init__(self, scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
        config = WorkerConfig(workers=2, arena_kind="nvshmem")
        self.processes = WorkerProcesses(config, "unix:none", scratch, lambda _: None)
        self.zygote = Zygote()
        self.killed: list[str] = []
        monkeypatch.setattr(self.processes, "_zygote", self.zygote)
        monkeypatch.setattr(self.processes, "kill", self.killed.append)
        self.processes._on_report(Ready(1, 0.1))
        self.report_spawned()

    def report_spawned(self) -> None:
        for pid, slot in enumerate(self.processes.slots):
            assert slot.worker is not None
            self.processes._on_report(Spawned(slot.worker, pid + 1))

    async def report_exit(self, index: int) -> None:
        slot = self.processes.slots[index]
        assert slot.worker is not None
        self.processes._on_report(Exited(slot.worker, index + 1, -9))
        await asyncio.sleep(0.01)


@pytest.fixture
def island(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Island]:
    scratch = Scratch(tmp_path)
    yield Island(scratch, monkeypatch)
    scratch.close()


async def test_island_ends_as_a_whole_and_starts_again_under_another_name(island: Island) -> None:
    assert island.zygote.places() == [("1", 0, 2), ("1", 1, 2)]
    island.processes.note_arena("nvshmem:i-1:1")
    await island.report_exit(1)
    assert island.killed == ["w0.0", "w1.0"]
    assert island.zygote.places() == [], "not before all have ended"
    await island.report_exit(0)
    assert island.zygote.places() == [("2", 0, 2), ("2", 1, 2)]


async def test_workers_that_found_no_gpu_memory_to_share_live_and_die_alone(island: Island) -> None:
    island.zygote.places()
    island.processes.note_arena("/dev/shm/w0.0.arena")
    await island.report_exit(1)
    assert island.killed == []
    assert island.zygote.places() == [None]


async def test_island_that_never_forms_is_started_again_with_shared_memory(
    island: Island, caplog: pytest.LogCaptureFixture
) -> None:
    island.zygote.places()
    await island.report_exit(0)
    assert "cannot share GPU memory" in caplog.text
    assert island.killed == ["w0.0", "w1.0"]
    await island.report_exit(1)
    assert island.zygote.places() == [None, None]
