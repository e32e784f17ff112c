"""Which arena a worker opens, and what it says about it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import torch

from comfyserverless.core.ids import WorkerId
from comfyserverless.core.messages import FromWorker, IslandReady, JoinIsland, Shutdown, ToWorker
from comfyserverless.core.zygote import IslandPlace, SpawnWorker
from comfyserverless.dataplane.nvshmem_arena import NvshmemArena
from comfyserverless.dataplane.nvshmem_library import NvshmemLibrary
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from comfyserverless.worker import arenas
from comfyserverless.worker.arenas import open_arena
from comfyserverless.worker.link import Link, LinkLost
from comfyserverless.worker.process import open_memory
from tests.support.fake_nvshmem import HostMemory, World

CPU = torch.device("cpu")


class Script:
    """A link whose other end says one thing."""

    def __init__(self, answer: ToWorker) -> None:
        self.sent: list[FromWorker] = []
        self._answer = answer

    def send(self, message: FromWorker) -> None:
        self.sent.append(message)

    def receive(self) -> Iterator[ToWorker]:
        yield self._answer


def request(folder: Path, island: IslandPlace | None, weights_bytes: int = 0) -> SpawnWorker:
    path = str(folder / "a")
    return SpawnWorker(
        WorkerId("w0.0"), "t", "unix:none", path, 1 << 20, island=island, weights_bytes=weights_bytes
    )


def test_worker_without_an_island_uses_shared_memory_and_asks_nobody(tmp_path: Path) -> None:
    script = Script(Shutdown())
    arena = open_arena(request(tmp_path, None), CPU, cast(Link, script))
    assert isinstance(arena, SharedMemoryArena)
    assert arena.device_bytes == 0
    assert script.sent == []
    arena.close()


def test_worker_without_a_gpu_says_so_in_one_line_and_uses_shared_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = IslandPlace("i", 0, 1)
    script = Script(IslandReady(b"", "there is no GPU"))
    with caplog.at_level(logging.WARNING):
        arena = open_arena(request(tmp_path, place), CPU, cast(Link, script))
    assert isinstance(arena, SharedMemoryArena)
    assert caplog.messages == [
        "worker w0.0 cannot keep results in GPU memory: there is no GPU; using shared memory"
    ]
    assert script.sent == [JoinIsland(WorkerId("w0.0"), "t", place, b"", "there is no GPU")]
    arena.close()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(ranks=1)
    monkeypatch.setattr(arenas, "find_library", lambda _: NvshmemLibrary(world.ranks[0], HostMemory()))
    monkeypatch.setattr(os, "environ", dict(os.environ))  # the library is told what to leave out of itself
    return world


def test_worker_of_an_island_starts_with_the_id_that_all_agreed_on(tmp_path: Path, world: World) -> None:
    place = IslandPlace("i", 0, 1)
    script = Script(IslandReady(world.uid, ""))
    arena = open_arena(request(tmp_path, place), CPU, cast(Link, script))
    assert isinstance(arena, NvshmemArena)
    assert arena.path == "nvshmem:i:0"
    assert script.sent == [JoinIsland(WorkerId("w0.0"), "t", place, world.uid, "")]
    arena.finish()


@pytest.mark.usefixtures("world")
def test_worker_that_could_takes_shared_memory_if_another_one_cannot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(IslandReady(b"", "w1.0 has no GPU"))
    arena = open_arena(request(tmp_path, IslandPlace("i", 0, 2)), CPU, cast(Link, script))
    assert isinstance(arena, SharedMemoryArena)
    assert "w1.0 has no GPU" in caplog.text
    arena.close()


@pytest.mark.usefixtures("world")
def test_other_answer_than_one_about_the_island_ends_the_worker(tmp_path: Path) -> None:
    with pytest.raises(LinkLost, match="Shutdown"):
        open_arena(request(tmp_path, IslandPlace("i", 0, 1)), CPU, cast(Link, Script(Shutdown())))


def test_results_that_leave_no_room_for_weights_stay_in_shared_memory(tmp_path: Path, world: World) -> None:
    script = Script(IslandReady(b"", "elsewhere"))
    place = IslandPlace("i", 0, 1)
    arena = open_arena(request(tmp_path, place), CPU, cast(Link, script), budget_bytes=256 << 20)
    assert isinstance(arena, SharedMemoryArena)
    (said,) = script.sent
    assert isinstance(said, JoinIsland)
    assert said.problem == (
        "1M for results (--arena-memory) of the 256M that a worker may use (--device-memory)"
        " leave less than 256M to weights"
    )
    assert world.ranks[0].calls == []
    arena.close()


def test_region_in_gpu_memory_comes_off_the_budget_of_weights(tmp_path: Path, world: World) -> None:
    asked = request(tmp_path, IslandPlace("i", 0, 1), weights_bytes=300 << 20)
    pool, arena = open_memory(asked, CPU, cast(Link, Script(IslandReady(world.uid, ""))))
    assert isinstance(arena, NvshmemArena)
    assert ("calloc", 1, arena.device_bytes) in world.ranks[0].calls
    device = pool.picture().device
    assert (device.budget_bytes, device.claimed_bytes) == (300 << 20, arena.device_bytes)
    arena.finish()


def test_region_in_shared_memory_takes_nothing_from_weights(tmp_path: Path) -> None:
    asked = request(tmp_path, None, weights_bytes=300 << 20)
    pool, arena = open_memory(asked, CPU, cast(Link, Script(Shutdown())))
    assert pool.picture().device.claimed_bytes == 0
    arena.close()
