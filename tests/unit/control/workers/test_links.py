"""Links of workers: who may join, what is routed, how a link ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from comfyserverless.control.workers.links import LinkServer
from comfyserverless.core import messages as wire
from comfyserverless.core.ids import WorkerId
from comfyserverless.core.zygote import IslandPlace

TOKEN = "secret"
ENCODE = msgspec.msgpack.encode
DECODER: msgspec.msgpack.Decoder[wire.ToWorker] = msgspec.msgpack.Decoder(wire.ToWorker)


class Owner:
    """Knows two workers and writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.changed = asyncio.Event()

    def token_of(self, worker: WorkerId) -> str | None:
        return TOKEN if worker in ("w0.0", "w1.0") else None

    def joined(self, hello: wire.Hello) -> None:
        self._tell(f"joined {hello.worker}")

    def received(self, worker: WorkerId, message: wire.FromWorker) -> None:
        self._tell(f"{type(message).__name__} of {worker}")

    def lost(self, worker: WorkerId) -> None:
        self._tell(f"lost {worker}")

    def _tell(self, text: str) -> None:
        self.told.append(text)
        self.changed.set()

    async def until(self, text: str) -> None:
        async with asyncio.timeout(60):
            while text not in self.told:
                self.changed.clear()
                await self.changed.wait()


def hello(worker: str = "w0.0", token: str = TOKEN, version: int = wire.LINK_VERSION) -> wire.Hello:
    device = wire.DeviceInfo("cpu", "cpu", None, 1, 1)
    return wire.Hello(version, WorkerId(worker), token, 1, {"gpu": 1}, (), device, "2", f"/arena/{worker}", 8)


class Wire:
    """A running link server and the way to dial it."""

    def __init__(self, path: Path, session: aiohttp.ClientSession) -> None:
        self.owner = Owner()
        self.server = LinkServer(self.owner)
        self.path = path
        self._session = session

    async def dial(self, first: bytes) -> aiohttp.ClientWebSocketResponse:
        socket = await self._session.ws_connect("http://localhost/link")
        await socket.send_bytes(first)
        return socket


@pytest.fixture
async def link(tmp_path: Path) -> AsyncIterator[Wire]:
    path = tmp_path / "link.sock"
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session:
        made = Wire(path, session)
        await made.server.start(path)
        yield made
        await made.server.stop()


async def receive(socket: aiohttp.ClientWebSocketResponse) -> wire.ToWorker:
    return DECODER.decode(await socket.receive_bytes(timeout=60))


async def test_worker_with_its_token_is_welcome(link: Wire) -> None:
    socket = await link.dial(ENCODE(hello()))
    assert await receive(socket) == wire.Welcome(wire.LINK_VERSION)
    link.server.send(WorkerId("w0.0"), wire.UnloadModels())
    assert await receive(socket) == wire.UnloadModels()
    await socket.send_bytes(ENCODE(wire.WorkerStats(1, 2, 3, 4, 5)))
    await link.owner.until("WorkerStats of w0.0")
    await socket.close()
    await link.owner.until("lost w0.0")
    assert link.owner.told == ["joined w0.0", "WorkerStats of w0.0", "lost w0.0"]


async def test_socket_is_for_this_user_only(link: Wire) -> None:
    assert link.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "first",
    [
        ENCODE(hello(token="guess")),
        ENCODE(hello(worker="w9.0")),
        ENCODE(hello(version=wire.LINK_VERSION + 1)),
        ENCODE(wire.WorkerStats(1, 2, 3, 4, 5)),
        b"\xc1 no message",
    ],
)
async def test_anybody_else_is_turned_away(link: Wire, first: bytes) -> None:
    socket = await link.dial(first)
    message = await socket.receive(timeout=60)
    assert message.type is aiohttp.WSMsgType.CLOSE
    assert message.data == 1008
    assert link.owner.told == []


def join_island(rank: int, token: str = TOKEN) -> wire.JoinIsland:
    uid = b"uid" if rank == 0 else b""
    return wire.JoinIsland(WorkerId(f"w{rank}.0"), token, IslandPlace("i", rank, 2), uid, "")


async def test_workers_of_an_island_hear_of_each_other_before_they_say_hello(link: Wire) -> None:
    sockets = [await link.dial(ENCODE(join_island(rank))) for rank in (0, 1)]
    for socket in sockets:
        assert await receive(socket) == wire.IslandReady(b"uid", "")
    assert link.owner.told == []
    for rank, socket in enumerate(sockets):
        await socket.send_bytes(ENCODE(hello(f"w{rank}.0")))
        assert isinstance(await receive(socket), wire.Welcome)
        await link.owner.until(f"joined w{rank}.0")


async def test_stranger_cannot_join_an_island(link: Wire) -> None:
    socket = await link.dial(ENCODE(join_island(0, token="guess")))
    assert (await socket.receive(timeout=60)).type is aiohttp.WSMsgType.CLOSE


async def test_second_link_of_a_joined_worker_is_turned_away(link: Wire) -> None:
    socket = await link.dial(ENCODE(hello()))
    await receive(socket)
    second = await link.dial(ENCODE(hello()))
    assert (await second.receive(timeout=60)).type is aiohttp.WSMsgType.CLOSE
    assert link.owner.told == ["joined w0.0"]
    await socket.close()


async def test_frame_that_is_no_message_ends_the_link(link: Wire) -> None:
    socket = await link.dial(ENCODE(hello()))
    await receive(socket)
    await socket.send_bytes(b"\xc1")
    await link.owner.until("lost w0.0")


async def test_peers_hear_of_each_others_arenas_and_of_their_end(link: Wire) -> None:
    first = await link.dial(ENCODE(hello("w0.0")))
    await receive(first)
    second = await link.dial(ENCODE(hello("w1.0")))
    assert isinstance(await receive(second), wire.Welcome)
    assert await receive(second) == wire.PeerArena(WorkerId("w0.0"), "/arena/w0.0", 8)
    assert await receive(first) == wire.PeerArena(WorkerId("w1.0"), "/arena/w1.0", 8)
    await first.close()
    assert await receive(second) == wire.PeerArena(WorkerId("w0.0"), "", 0)
    await second.close()
