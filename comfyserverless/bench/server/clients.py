"""Be many clients at little cost: the machine that is measured also runs these.

Websockets are read as they come, without JSON: what is counted is found by its bytes. Requests go over kept
connections, one at a time on each.
"""

from __future__ import annotations

import asyncio
import base64
import os
import struct
from collections import Counter
from functools import partial

_CLOSE = 8


class SocketClient(asyncio.Protocol):
    """One websocket that counts the messages of each type; `is_lost` is set when the server ends it."""

    def __init__(self, port: int, client_id: str, counts: Counter[str]) -> None:
        self._counts = counts
        self._buffer = bytearray()
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        self.is_lost = False
        self._is_closing = False
        key = base64.b64encode(os.urandom(16)).decode()
        self._hello = (
            f"GET /ws?clientId={client_id} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        ).encode()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for a websocket."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._hello)

    def data_received(self, data: bytes) -> None:
        """Count whole messages."""
        self._buffer += data
        if not self.opened.done():
            head, found, rest = bytes(self._buffer).partition(b"\r\n\r\n")
            if not found:
                return
            if b" 101 " not in head.split(b"\r\n", 1)[0]:
                self.opened.set_exception(ConnectionError(head.decode(errors="replace")))
                return
            self._buffer = bytearray(rest)
            self.opened.set_result(None)
        self._take_frames()

    def _take_frames(self) -> None:
        buffer, at = self._buffer, 0
        while len(buffer) - at >= 2:
            length, start = buffer[at + 1] & 0x7F, at + 2
            if length >= 126:
                width = 2 if length == 126 else 8
                if len(buffer) < start + width:
                    break
                (length,) = struct.unpack_from(">H" if width == 2 else ">Q", buffer, start)
                start += width
            if len(buffer) < start + length:
                break
            if buffer[at] & 0x0F == _CLOSE:
                self._transport.close()  # after which `connection_lost` is called
            else:
                self._counts[_type_of(bytes(buffer[start : start + 48]))] += 1
            at = start + length
        del buffer[:at]

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the server ended it."""
        self.is_lost = not self._is_closing
        self.ended.set()
        if not self.opened.done():
            self.opened.set_exception(exc or ConnectionError("the server closed the websocket"))

    def close(self) -> None:
        """End it."""
        self._is_closing = True
        self._transport.close()


def _type_of(start: bytes) -> str:
    """Return the type of a message by its first bytes: the type is what our server writes first."""
    return (
        start[9 : start.find(b'"', 9)].decode(errors="replace") if start.startswith(b'{"type":"') else "other"
    )


async def open_sockets(port: int, ids: list[str], counts: Counter[str]) -> list[SocketClient]:
    """Open a websocket for each client id. Raises ConnectionError, OSError."""
    loop, sockets = asyncio.get_running_loop(), []
    for client_id in ids:
        make = partial(SocketClient, port, client_id, counts)
        _, socket = await loop.create_connection(make, "127.0.0.1", port)
        await socket.opened
        sockets.append(socket)
    return sockets


class Requests:
    """Send HTTP requests over kept connections, as many at once as there are to send."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def send(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return status and body of the answer. Raises OSError, IncompleteReadError (an EOFError)."""
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        try:
            answer = await self._ask(reader, writer, _request(self._port, method, path, body))
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))
        return answer

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
    ) -> tuple[int, bytes]:
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head.split(b" ", 2)[1])
        if b"transfer-encoding: chunked" in head:
            return status, await _read_chunks(reader)
        length = head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]
        return status, await reader.readexactly(int(length))

    def close(self) -> None:
        """End the idle connections."""
        for _, writer in self._idle:
            writer.close()


def _request(port: int, method: str, path: str, body: bytes) -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int(await reader.readline(), 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(parts)
