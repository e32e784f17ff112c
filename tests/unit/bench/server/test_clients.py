"""What a server sends is counted whole, in whatever pieces it comes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest
from aiohttp import web

from comfyserverless.bench.server.clients import Requests, SocketClient, open_sockets
from comfyserverless.bench.server.load import percentile


def text(kind: str, size: int = 0) -> bytes:
    return json.dumps({"type": kind, "data": "x" * size}, separators=(",", ":")).encode()


async def hello(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    for size in (0, 100, 200, 70_000):
        await socket.send_str(text("status", size).decode())
    await socket.send_str(text("execution_start").decode())
    await socket.send_bytes(b"\x00\x00\x00\x01picture")
    if request.query["clientId"] == "short":
        await socket.close()
    async for _ in socket:
        pass
    return socket


async def echo(request: web.Request) -> web.StreamResponse:
    body = await request.read()
    if request.query.get("chunked") is None:
        return web.Response(body=body, status=201)
    answer = web.StreamResponse()
    answer.enable_chunked_encoding()
    await answer.prepare(request)
    for start in range(0, len(body), 3):
        await answer.write(body[start : start + 3])
    return answer


async def start(app: web.Application) -> tuple[web.AppRunner, int]:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, runner.addresses[0][1]


async def test_messages_of_any_length_are_counted_by_type_and_a_closed_socket_is_lost() -> None:
    app = web.Application()
    app.add_routes([web.get("/ws", hello)])
    runner, port = await start(app)
    counts: Counter[str] = Counter()
    sockets = await open_sockets(port, ["long", "short"], counts)
    await asyncio.wait_for(sockets[1].ended.wait(), 60)
    async with asyncio.timeout(60):
        while counts.total() < 12:  # noqa: ASYNC110  (nothing tells when the other one has what was sent)
            await asyncio.sleep(0.01)
    assert counts == {"status": 8, "execution_start": 2, "other": 2}
    for socket in sockets:
        socket.close()
    await asyncio.wait_for(sockets[0].ended.wait(), 60)
    assert [socket.is_lost for socket in sockets] == [False, True]
    await runner.cleanup()


async def test_message_that_comes_byte_by_byte_is_counted_once() -> None:
    counts: Counter[str] = Counter()
    client = SocketClient(1, "x", counts)
    body = text("progress", 300)
    frame = bytes([0x81, 126]) + len(body).to_bytes(2, "big") + body
    for byte in b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + 2 * frame:
        client.data_received(bytes([byte]))
    assert counts == {"progress": 2}
    assert client.opened.done()


async def test_answers_are_read_whole_and_connections_are_kept() -> None:
    app = web.Application()
    app.add_routes([web.post("/echo", echo)])
    runner, port = await start(app)
    requests = Requests(port)
    assert await requests.send("POST", "/echo", b"hello") == (201, b"hello")
    assert await requests.send("POST", "/echo?chunked=1", b"hello again") == (200, b"hello again")
    assert len(requests._idle) == 1
    requests.close()
    await runner.cleanup()


def test_percentile_is_the_value_that_so_many_stay_below() -> None:
    values = [float(nth) for nth in range(1, 1_001)]
    assert percentile(values, 0.5) == pytest.approx(500.5, abs=1)
    assert percentile(values, 0.99) == pytest.approx(990, abs=1)
    assert percentile([], 0.99) == 0
    assert percentile([3.0], 0.5) == 3.0
