"""Prove that a server comes up quickly, goes away cleanly, and leaves nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tests.support.client import Client
from tests.support.server import PATIENCE_S, SHM, RunningServer, shared_memory_of
from tests.support.striking import until

START = Callable[..., RunningServer]


async def wait_for_workers(server: RunningServer) -> list[dict[str, object]]:
    """Return the workers once all are ready; the client asks until they are."""
    async with Client(server.url) as client:
        return await client.wait_for_workers()


async def test_stopped_server_leaves_nothing_behind(start_server: START) -> None:
    server = start_server()
    await wait_for_workers(server)
    assert len(server.pids()) >= 3, "server, zygote and worker"
    assert shared_memory_of(server.pids()), "the arena is shared memory"
    server.stop()  # asserts that processes and shared memory are gone


async def test_server_stopped_before_its_workers_are_up_leaves_nothing_behind(start_server: START) -> None:
    start_server().stop()


async def test_interrupt_key_stops_the_server_as_well(start_server: START) -> None:
    server = start_server()
    await wait_for_workers(server)
    server.stop(by=signal.SIGINT)


def test_control_process_loads_no_torch(start_server: START) -> None:
    server = start_server()
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "libtorch" not in maps
    assert "numpy" not in maps


async def test_workers_without_gpus_say_so_once_each_and_share_memory_of_the_host(start_server: START) -> None:
    server = start_server("--arena", "nvshmem", "--arena-memory", "128M", "--workers", "2")
    workers = await wait_for_workers(server)
    assert [worker["arena_bytes"] for worker in workers] == [128 << 20] * 2
    await until(
        lambda: says(server, "cannot keep results in GPU memory: there is no GPU; using shared memory", 2)
    )
    assert server.log().count("cannot keep results in GPU memory") == 2


async def says(server: RunningServer, line: str, times: int) -> bool:
    """Tell whether a line is in the log as often."""
    return server.log().count(line) == times


async def test_what_a_killed_server_left_is_removed_by_the_next_one(start_server: START) -> None:
    killed = start_server()
    await wait_for_workers(killed)
    left = shared_memory_of(killed.pids())
    killed.process.kill()
    killed.process.wait(PATIENCE_S)
    assert not killed.settled_pids(), "its workers end with it"
    start_server().stop()
    assert not [name for name in os.listdir(SHM) if f"-{killed.process.pid}-" in name or SHM + name in left]
