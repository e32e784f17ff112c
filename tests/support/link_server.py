"""Be the control side of one worker link, for tests of workers: a websocket server on a unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from aiohttp import WSMsgType, web

from comfyserverless.core import messages as wire
from comfyserverless.core import values
from comfyserverless.core.ids import InvocationId, WorkerId

Message = TypeVar("Message", bound=wire.FromWorker)

_TIMEOUT_S = 240.0


class WorkerLink:
    """One worker that said hello; `received` keeps what it sent and nobody asked for yet."""

    def __init__(self, socket: web.WebSocketResponse, hello: wire.Hello) -> None:
        self.hello = hello
        self.socket = socket
        self._received: asyncio.Queue[wire.FromWorker] = asyncio.Queue()

    async def send(self, message: wire.ToWorker) -> None:
        await self.socket.send_bytes(msgspec.msgpack.encode(message))

    async def submit(self, invocation: str, function: str, lane: str = "cpu", **inputs: Any) -> None:
        await self.send(wire.RunInvocation(InvocationId(invocation), function, lane, values.encode(inputs)))  # type: ignore[arg-type]

    async def run(self, invocation: str, function: str, lane: str = "cpu", **inputs: Any) -> Mapping[str, Any]:
        """Run one invocation and return its outputs; raises AssertionError with the answer if it failed."""
        await self.submit(invocation, function, lane, **inputs)
        answer: wire.FromWorker = await self.expect(wire.FromWorker)  # type: ignore[arg-type]
        assert isinstance(answer, wire.InvocationDone), answer
        outputs: Mapping[str, Any] = values.decode(answer.outputs)
        return outputs

    async def expect(self, kind: type[Message]) -> Message:
        """Return the next message; statistics are skipped unless they are asked for."""
        while True:
            message = await asyncio.wait_for(self._received.get(), _TIMEOUT_S)
            if kind is wire.WorkerStats or not isinstance(message, wire.WorkerStats):
                if kind is wire.WorkerStats and not isinstance(message, wire.WorkerStats):
                    continue
                assert isinstance(message, kind), message
                return message

    async def pump(self) -> None:
        """Take in what the worker sends until the link ends."""
        decoder = msgspec.msgpack.Decoder(wire.FromWorker)
        async for frame in self.socket:
            if frame.type is WSMsgType.BINARY:
                self._received.put_nowait(decoder.decode(frame.data))


class LinkServer:
    """Accept links; a worker is welcome whatever its token."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = f"unix:{path}"
        self._joined: dict[WorkerId, asyncio.Future[WorkerLink]] = {}

    def _future(self, worker: WorkerId) -> asyncio.Future[WorkerLink]:
        return self._joined.setdefault(worker, asyncio.get_running_loop().create_future())

    async def joined(self, worker: str) -> WorkerLink:
        """Wait for a worker's hello."""
        return await asyncio.wait_for(self._future(WorkerId(worker)), _TIMEOUT_S)

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0, compress=False)
        await socket.prepare(request)
        hello = msgspec.msgpack.decode(await socket.receive_bytes(), type=wire.Hello)
        link = WorkerLink(socket, hello)
        await link.send(wire.Welcome(wire.LINK_VERSION))
        self._future(hello.worker).set_result(link)
        await link.pump()
        return socket


@asynccontextmanager
async def serve_links(path: Path) -> AsyncIterator[LinkServer]:
    """Listen on a unix socket for the duration of the block."""
    server = LinkServer(path)
    app = web.Application()
    app.router.add_get("/link", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    await web.UnixSite(runner, str(path)).start()
    try:
        yield server
    finally:
        await runner.cleanup()
