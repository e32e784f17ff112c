"""Stand at the other end of webhooks: a small HTTP server that remembers what it was sent."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.test_utils import TestServer


@dataclass(slots=True)
class Receiver:
    """Answer calls with the given statuses, then always with the last one.

    gate: opened for answers to leave; None for an open one. busy, most_busy: calls that are being answered, now
    and at most.
    """

    statuses: Sequence[int] = (200,)
    gate: asyncio.Event | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    calls: list[tuple[Mapping[str, str], bytes]] = field(default_factory=list)
    busy: int = 0
    most_busy: int = 0
    server: TestServer | None = None

    async def start(self, place: socket.socket | None = None) -> str:
        """Listen on loopback, or on a socket that has a port there; returns the address to call."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._take)
        if place is None:
            place = socket.socket()
            place.bind(("127.0.0.1", 0))
        self.server = TestServer(app, port=place.getsockname()[1], socket_factory=lambda *_: place)
        await self.server.start_server()
        return str(self.server.make_url("/hook?token=hidden"))

    async def stop(self) -> None:
        """Stop listening."""
        if self.gate is not None:
            self.gate.set()
        if self.server is not None:
            await self.server.close()

    async def _take(self, request: web.Request) -> web.Response:
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        body = await request.read()
        self.calls.append((dict(request.headers), body))
        if self.gate is not None:
            await self.gate.wait()
        self.busy -= 1
        status = self.statuses[min(len(self.calls), len(self.statuses)) - 1]
        return web.Response(status=status, headers=self.headers)

    async def wait_for(self, count: int, within_s: float = 60.0) -> None:
        """Wait until so many calls have come. Raises TimeoutError."""
        async with asyncio.timeout(within_s):
            while len(self.calls) < count:  # noqa: ASYNC110  (calls come from elsewhere)
                await asyncio.sleep(0.01)


def is_signed(headers: Mapping[str, str], body: bytes, secret: str) -> bool:
    """Check a call as its receiver would, from the documented form alone."""
    parts = dict(part.split("=", 1) for part in headers["X-Comfyserverless-Signature"].split(","))
    expected = hmac.new(secret.encode(), f"{parts['t']}.".encode() + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(parts["v1"], expected)
