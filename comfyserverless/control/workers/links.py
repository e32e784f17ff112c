"""Listen for workers: one websocket each, on a unix socket of this host.

A link starts with Hello and the token that its worker was started with (before it, there may be JoinIsland with
the same token); everything else before that, and every frame that is no message, ends the link. The end of a
link is the loss of its worker.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
from collections import deque
from pathlib import Path
from typing import Protocol

import msgspec
from aiohttp import WSMsgType, web

from comfyserverless.control.workers.islands import Islands
from comfyserverless.core import messages as wire
from comfyserverless.core.ids import WorkerId

log = logging.getLogger(__name__)

_HELLO_TIMEOUT_S = 30.0


class LinkOwner(Protocol):
    """Who is told about links; all calls come on the event loop."""

    def token_of(self, worker: WorkerId) -> str | None:
        """Return the token a worker was started with, None if no such worker was started."""

    def joined(self, hello: wire.Hello) -> None:
        """Take a worker that said a valid Hello and got its Welcome."""

    def received(self, worker: WorkerId, message: wire.FromWorker) -> None:
        """Take a message of a joined worker."""

    def lost(self, worker: WorkerId) -> None:
        """Take note that a joined worker's link is gone."""


class _Outbox:
    """Send frames of one link in order, without making the sender wait."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket
        self._frames: deque[bytes] = deque()
        self._filled = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def put(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._filled.set()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._frames:
                await self._socket.send_bytes(self._frames.popleft())


class LinkServer:
    """Accept worker links and route messages."""

    def __init__(self, owner: LinkOwner) -> None:
        self._owner = owner
        #: all and only workers that are joined.
        self._outboxes: dict[WorkerId, _Outbox] = {}
        self._arenas: dict[WorkerId, wire.PeerArena] = {}
        self._islands = Islands()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[wire.FromWorker] = msgspec.msgpack.Decoder(wire.FromWorker)
        self._runner: web.AppRunner | None = None

    async def start(self, socket_path: Path) -> None:
        """Listen on a unix socket, readable by this user only."""
        app = web.Application()
        app.router.add_get("/link", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(socket_path)).start()
        os.chmod(socket_path, 0o600)

    async def stop(self) -> None:
        """Close all links and the socket."""
        if self._runner is not None:
            await self._runner.cleanup()

    def send(self, worker: WorkerId, message: wire.ToWorker) -> None:
        """Queue a message; one to a worker that is gone is dropped (its loss is an event of its own)."""
        outbox = self._outboxes.get(worker)
        if outbox is not None:
            outbox.put(self._encoder.encode(message))

    def broadcast(self, message: wire.ToWorker) -> None:
        """Queue a message to every joined worker."""
        for worker in list(self._outboxes):
            self.send(worker, message)

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0, compress=False, autoping=True)
        await socket.prepare(request)
        hello = await self._read_hello(socket)
        if hello is None:
            await socket.close(code=1008, message=b"expected a valid hello")
            return socket
        self._join(hello, socket)
        try:
            async for frame in socket:
                if frame.type is WSMsgType.BINARY:
                    self._owner.received(hello.worker, self._decoder.decode(frame.data))
        except msgspec.DecodeError as exc:
            log.error("worker %s sent a frame that is no message: %s", hello.worker, exc)
        finally:
            await self._leave(hello.worker)
        return socket

    async def _read_hello(self, socket: web.WebSocketResponse) -> wire.Hello | None:
        first = await self._read(socket)
        if isinstance(first, wire.JoinIsland) and self._is_known(first):
            await socket.send_bytes(self._encoder.encode(await self._islands.join(first)))
            first = await self._read(socket)
        if not isinstance(first, wire.Hello) or first.version != wire.LINK_VERSION:
            return None
        return first if self._is_known(first) and first.worker not in self._outboxes else None

    async def _read(self, socket: web.WebSocketResponse) -> wire.FromWorker | None:
        try:
            return self._decoder.decode(await socket.receive_bytes(timeout=_HELLO_TIMEOUT_S))
        except (TimeoutError, TypeError, msgspec.DecodeError):
            return None

    def _is_known(self, message: wire.Hello | wire.JoinIsland) -> bool:
        token = self._owner.token_of(message.worker)
        return token is not None and hmac.compare_digest(token, message.token)

    def _join(self, hello: wire.Hello, socket: web.WebSocketResponse) -> None:
        self._outboxes[hello.worker] = _Outbox(socket)
        self.send(hello.worker, wire.Welcome(wire.LINK_VERSION))
        mine = wire.PeerArena(hello.worker, hello.arena_path, hello.arena_bytes)
        for peer, arena in self._arenas.items():
            self.send(hello.worker, arena)
            self.send(peer, mine)
        self._arenas[hello.worker] = mine
        self._owner.joined(hello)

    async def _leave(self, worker: WorkerId) -> None:
        outbox = self._outboxes.pop(worker)
        self._arenas.pop(worker, None)
        self.broadcast(wire.PeerArena(worker, "", 0))
        try:
            self._owner.lost(worker)
        finally:
            await outbox.close()
