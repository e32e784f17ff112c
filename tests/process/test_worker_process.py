"""Real zygotes and workers: they start, compute, share tensors, and leave nothing behind when killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch

from comfyserverless.core import messages as wire
from comfyserverless.core.ids import WorkerId
from comfyserverless.core.modelfn import BUILTIN_FUNCTIONS
from comfyserverless.core.values import FileRef
from comfyserverless.core.zygote import Exited, StopZygote
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from comfyserverless.dataplane.store import TensorStore
from tests.support.link_server import LinkServer, WorkerLink, serve_links
from tests.support.zygote import RunningZygote, run_zygote, shared_memory_path, wait_until_gone

PROJECT = Path(__file__).parents[2]


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def links(tmp_path: Path) -> AsyncIterator[LinkServer]:
    async with serve_links(tmp_path / "link") as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def zygote() -> AsyncIterator[RunningZygote]:
    """Return a zygote that the tests of this module share: end your workers, and leave it running."""
    async with run_zygote() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def own_zygote() -> AsyncIterator[RunningZygote]:
    """Return a zygote of this test only."""
    async with run_zygote() as running:
        yield running


async def end(zygote: RunningZygote, link: WorkerLink) -> Exited:
    """Shut a worker down and return the report of its end."""
    await link.send(wire.Shutdown())
    return await zygote.expect(Exited)


@pytest.fixture
def arenas() -> Iterator[dict[str, Path]]:
    paths = {name: shared_memory_path(name) for name in ("a", "b", "mine")}
    yield paths
    for path in paths.values():
        path.unlink(missing_ok=True)


async def test_worker_computes_and_shares_with_its_peers(
    zygote: RunningZygote, links: LinkServer, arenas: dict[str, Path]
) -> None:
    first = await zygote.spawn("w0.0", links.address, arenas["a"])
    second = await zygote.spawn("w1.0", links.address, arenas["b"])
    one, two = await links.joined("w0.0"), await links.joined("w1.0")
    assert (one.hello.pid, two.hello.pid) == (first.pid, second.pid)
    assert one.hello.token == "token-w0.0"
    assert {spec.name: spec for spec in one.hello.functions} == dict(BUILTIN_FUNCTIONS)

    store = TensorStore(WorkerId("me"), SharedMemoryArena(str(arenas["mine"]), 1 << 20))
    for link, path in ((one, arenas["mine"]), (two, arenas["a"])):
        owner = "me" if path == arenas["mine"] else "w0.0"
        await link.send(wire.PeerArena(WorkerId(owner), str(path), path.stat().st_size))
    image = torch.rand(2, 20, 30, 3)
    scaling = {"width": 15, "height": 10, "method": "area", "crop": "disabled"}
    half = (await one.run("i1", "image.scale", images=store.put(image), **scaling))["images"]
    assert (half.worker, half.shape) == ("w0.0", (2, 10, 15, 3))
    same = (await two.run("i2", "image.scale", images=half, **scaling))["images"]
    store.add_peer(WorkerId("w1.0"), str(arenas["b"]))
    expected = torch.nn.functional.avg_pool2d(image.movedim(-1, 1), 2).movedim(1, -1)
    assert torch.allclose(store.get(same), expected, atol=1e-6)

    assert await end(zygote, one) == Exited(WorkerId("w0.0"), first.pid, 0)
    assert not arenas["a"].exists()
    await end(zygote, two)


async def test_zygote_has_one_thread_so_that_it_may_fork(zygote: RunningZygote) -> None:
    assert len(os.listdir(f"/proc/{zygote.process.pid}/task")) == 1


async def test_worker_that_is_killed_is_reported_and_replaced(
    zygote: RunningZygote, links: LinkServer, arenas: dict[str, Path]
) -> None:
    spawned = await zygote.spawn("w0.0", links.address, arenas["a"])
    await links.joined("w0.0")
    os.kill(spawned.pid, signal.SIGKILL)
    assert await zygote.expect(Exited) == Exited(WorkerId("w0.0"), spawned.pid, -signal.SIGKILL)
    assert not arenas["a"].exists()
    await zygote.spawn("w0.1", links.address, arenas["a"])
    link = await links.joined("w0.1")
    outputs = await link.run("i1", "latent.empty", width=64, height=32, batch_size=1)
    assert outputs["samples"].shape == (1, 4, 4, 8)
    await end(zygote, link)


async def test_failure_of_a_function_is_an_answer(
    zygote: RunningZygote, links: LinkServer, arenas: dict[str, Path], tmp_path: Path
) -> None:
    await zygote.spawn("w0.0", links.address, arenas["a"])
    link = await links.joined("w0.0")
    (tmp_path / "broken.png").write_bytes(b"no image")
    await link.submit("i1", "image.load", file=FileRef(str(tmp_path / "broken.png")))
    failed = await link.expect(wire.InvocationFailed)
    assert failed.exception_type == "comfyserverless.core.errors.PromptError"
    assert "cannot read image 'broken.png'" in failed.message
    assert "functions/image.py" in failed.traceback[0]
    await end(zygote, link)


async def test_worker_ends_when_its_link_is_lost(
    zygote: RunningZygote, links: LinkServer, arenas: dict[str, Path]
) -> None:
    spawned = await zygote.spawn("w0.0", links.address, arenas["a"])
    link = await links.joined("w0.0")
    await link.socket.close()
    assert await zygote.expect(Exited) == Exited(WorkerId("w0.0"), spawned.pid, 3)
    assert not arenas["a"].exists()


async def test_worker_without_anybody_to_dial_ends(
    zygote: RunningZygote, arenas: dict[str, Path], tmp_path: Path
) -> None:
    await zygote.spawn("w0.0", f"unix:{tmp_path / 'nobody'}", arenas["a"])
    assert (await zygote.expect(Exited)).status != 0
    assert not arenas["a"].exists()


async def test_stopped_zygote_ends_its_workers(
    own_zygote: RunningZygote, links: LinkServer, arenas: dict[str, Path]
) -> None:
    spawned = await own_zygote.spawn("w0.0", links.address, arenas["a"])
    await links.joined("w0.0")
    own_zygote.write(StopZygote())
    assert (await own_zygote.expect(Exited)).pid == spawned.pid
    assert await own_zygote.wait() == 0
    assert not arenas["a"].exists()


async def test_workers_end_with_a_zygote_that_is_killed(
    own_zygote: RunningZygote, links: LinkServer, arenas: dict[str, Path]
) -> None:
    spawned = await own_zygote.spawn("w0.0", links.address, arenas["a"])
    await links.joined("w0.0")
    own_zygote.process.kill()
    await wait_until_gone(spawned.pid, own_zygote.process.pid)


_PARENT = """
import asyncio, sys
from pathlib import Path
from tests.support.link_server import serve_links
from tests.support.zygote import run_zygote

async def main(link, arena):
    async with serve_links(Path(link)) as links, run_zygote() as zygote:
        spawned = await zygote.spawn("w0.0", links.address, Path(arena))
        await links.joined("w0.0")
        print(zygote.process.pid, spawned.pid, flush=True)
        await asyncio.sleep(1000)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_nothing_outlives_a_parent_that_is_killed(arenas: dict[str, Path], tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _PARENT,
        str(tmp_path / "link"),
        str(arenas["a"]),
        stdout=asyncio.subprocess.PIPE,
        cwd=PROJECT,
    )
    assert parent.stdout is not None
    pids = [int(word) for word in (await parent.stdout.readline()).split()]
    assert arenas["a"].exists()
    parent.kill()
    await parent.wait()
    await wait_until_gone(*pids)
    assert not arenas["a"].exists()
