"""Keep the websockets of the page: who listens, what waits to be sent, and what a slow client loses.

Every socket has one queue, so its messages leave in the order of emission, and one writer, so a slow client
holds up nobody else. The queue is bounded: beyond the soft limit waiting previews are dropped, and if that is
not enough progress too (later messages repeat it); beyond the hard limit the socket is closed, and the page
reconnects. Who reconnects is told where its prompts are, and what it missed of those that ended meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from comfyserverless.control.views import Notice, QueueChanged
from comfyserverless.core.ids import TenantId
from comfyserverless.server.broadcasts.pacing import QueuePace
from comfyserverless.server.reconnects.missed import Entry, Frame, Missed
from comfyserverless.server.reconnects.resuming import Standing, so_far
from comfyserverless.server.wire import Outgoing, Support, Translator, status_data, text_frame

_log = logging.getLogger(__name__)

SOFT_LIMIT_BYTES = 4 << 20
HARD_LIMIT_BYTES = 32 << 20
HARD_LIMIT_FRAMES = 20_000


@dataclass(slots=True)
class Backlog:
    """Frames that wait for one socket, oldest first.

    The page needs every other frame; droppable ones only inform and are repeated by later ones. Of those,
    pictures (binary frames) go first: they are the largest and the least.
    """

    soft_limit_bytes: int = SOFT_LIMIT_BYTES
    hard_limit_bytes: int = HARD_LIMIT_BYTES
    entries: deque[Entry] = field(default_factory=deque)
    waiting_bytes: int = 0
    droppable_frames: int = 0

    def push(self, entry: Entry) -> bool:
        """Append a frame, dropping what may be dropped when much waits; False if the limit is passed."""
        if self.waiting_bytes > self.soft_limit_bytes:
            self._drop()
            if entry.is_droppable and self.waiting_bytes > self.soft_limit_bytes:
                return True
        self.entries.append(entry)
        self.waiting_bytes += len(entry.frame)
        self.droppable_frames += entry.is_droppable
        return self.waiting_bytes <= self.hard_limit_bytes and len(self.entries) <= HARD_LIMIT_FRAMES

    def pop(self) -> Frame:
        """Remove the oldest frame."""
        entry = self.entries.popleft()
        self.waiting_bytes -= len(entry.frame)
        self.droppable_frames -= entry.is_droppable
        return entry.frame

    def _drop(self) -> None:
        if self.droppable_frames:
            self._retain(lambda entry: not (entry.is_droppable and isinstance(entry.frame, bytes)))
        if self.droppable_frames and self.waiting_bytes > self.soft_limit_bytes:
            self._retain(lambda entry: not entry.is_droppable)

    def _retain(self, is_needed: Callable[[Entry], bool]) -> None:
        self.entries = deque(filter(is_needed, self.entries))
        self.waiting_bytes = sum(len(entry.frame) for entry in self.entries)
        self.droppable_frames = sum(entry.is_droppable for entry in self.entries)


class Socket:
    """One open websocket: its id, who opened it, what its page understands, and its writer."""

    def __init__(
        self, sid: str, tenant: TenantId, request: web.Request, connection: web.WebSocketResponse
    ) -> None:
        self.sid = sid
        self.tenant = tenant
        self.request = request
        self.flags: Mapping[str, Any] = {}
        self.connection = connection
        self._backlog = Backlog()
        self._wakeup = asyncio.Event()
        self._is_overrun = False

    def takes(self, support: Support) -> bool:
        """Tell whether a message for sockets of that kind is for this one."""
        if support is Support.ANY:
            return True
        return bool(self.flags.get("supports_preview_metadata")) == (support is Support.METADATA)

    def push(self, entry: Entry) -> None:
        """Queue a frame; a client that does not read is cut off instead of filling memory."""
        if self._is_overrun:
            return
        if not self._backlog.push(entry):
            _log.warning("Closing a websocket that does not read its messages (client %s)", self.sid)
            self._is_overrun = True
            self.abort()
        self._wakeup.set()

    def tell(self, kind: str, data: Mapping[str, Any], *, is_droppable: bool = False) -> None:
        """Queue one text message for this socket alone."""
        self.push(Entry(text_frame(kind, data), is_droppable))

    def unsent(self) -> Sequence[Entry]:
        """Return what waits to be sent."""
        return self._backlog.entries

    def abort(self) -> None:
        """Cut the connection at once: the writer may be waiting for a peer that never reads."""
        if (transport := self.request.transport) is not None:
            transport.abort()

    async def write(self) -> None:
        """Send queued frames until the socket closes; runs as a task beside the reader."""
        while not self._is_overrun:
            await self._wakeup.wait()
            self._wakeup.clear()
            while self._backlog.entries and not self._is_overrun:
                frame = self._backlog.pop()
                if isinstance(frame, str):
                    await self.connection.send_str(frame)
                else:
                    await self.connection.send_bytes(frame)


class SocketHub:
    """Route messages to sockets by tenant and client id."""

    def __init__(self, features: Mapping[str, Any]) -> None:
        self.features = features
        self._translator = Translator()
        #: the newest socket of each (tenant, client id).
        self._by_id: dict[tuple[TenantId, str], Socket] = {}
        #: every open socket, also replaced ones, with its writer.
        self._writers: dict[Socket, asyncio.Task[None]] = {}
        #: keys of `_by_id` that get console lines -> the tenant whose lines alone they get, None for all.
        self._log_readers: dict[tuple[TenantId, str], TenantId | None] = {}
        self._missed = Missed()
        self._pace = QueuePace(self._tell, self._sockets_of)

    def on_notice(self, notice: Notice) -> None:
        """Send what a notice causes; listener of the engine."""
        if isinstance(notice, QueueChanged):
            self._pace.offer(notice)
        else:
            self._tell(notice)

    def _tell(self, notice: Notice) -> None:
        self._send_all(self._translator.translate(notice))
        if self._translator.has_held:
            asyncio.get_running_loop().call_soon(self._flush)

    def send(self, message: Outgoing) -> None:
        """Send one message to whom it is for; it is encoded once, and only if somebody listens."""
        entry: Entry | None = None
        for socket in self._audience(message):
            if entry is None:
                entry = _entry(message)
            socket.push(entry)
        if entry is None and message.client_id is not None and message.is_lasting:
            absent = (message.tenant, message.client_id)
            if self._missed.is_away(absent):
                self._missed.keep(absent, _entry(message))

    def send_log(self, data: Mapping[str, Any], about: TenantId | None = None) -> None:
        """Send console lines to the pages that asked for them and may see lines about this tenant."""
        for reader, only in self._log_readers.items():
            if only is None or only == about:
                self._by_id[reader].tell("logs", data, is_droppable=True)

    def set_log_reader(
        self, tenant: TenantId, sid: str, *, is_enabled: bool, only: TenantId | None = None
    ) -> None:
        """Start or stop console lines for a socket of a tenant, all or only some; unknown ids are ignored."""
        if is_enabled and (tenant, sid) in self._by_id:
            self._log_readers[tenant, sid] = only
        else:
            self._log_readers.pop((tenant, sid), None)

    @property
    def count(self) -> int:
        """Return how many sockets are open."""
        return len(self._writers)

    def limit_log_reader(self, socket: Socket) -> None:
        """Give a socket that gets all console lines only its tenant's from now on."""
        key = (socket.tenant, socket.sid)
        if key in self._log_readers:
            self._log_readers[key] = socket.tenant

    def sockets(self) -> list[Socket]:
        """List the open sockets."""
        return list(self._writers)

    def count_of(self, tenant: TenantId) -> int:
        """Return how many sockets of a tenant are open."""
        return sum(socket.tenant == tenant for socket in self._writers)

    def tenants(self) -> set[TenantId]:
        """Return the tenants with an open socket."""
        return {socket.tenant for socket in self._writers}

    def owners(self, sid: str) -> list[TenantId]:
        """List the tenants that have a socket of this id."""
        return [tenant for tenant, known in self._by_id if known == sid]

    def cut_off(self, tenant: TenantId) -> None:
        """Close a tenant's sockets: its account has ended."""
        for socket in list(self._writers):
            if socket.tenant == tenant:
                socket.abort()
        self._missed.forget(tenant)

    async def serve(
        self, request: web.Request, tenant: TenantId, look_up: Callable[[str], Standing]
    ) -> web.WebSocketResponse:
        """Run one websocket until it closes. look_up: tell where the prompts of a client id are now."""
        connection = web.WebSocketResponse()
        await connection.prepare(request)
        sid = request.query.get("clientId") or uuid.uuid4().hex
        socket = Socket(sid, tenant, request, connection)
        self._bring_up_to_date(socket, look_up(sid))
        self._by_id[tenant, sid] = socket
        self._writers[socket] = asyncio.ensure_future(self._write(socket))
        try:
            with suppress(ConnectionError):  # the peer went away between a ping of it and our pong
                await self._read(socket)
        finally:
            self._remove(socket)
        return connection

    async def close(self) -> None:
        """Close all sockets; the server is going away."""
        sockets = list(self._writers)
        closing = (socket.connection.close(code=WSCloseCode.GOING_AWAY) for socket in sockets)
        await asyncio.gather(*closing, return_exceptions=True)

    def _bring_up_to_date(self, socket: Socket, standing: Standing) -> None:
        """Send the queue, the node that runs, and what a client that comes back needs on top of ComfyUI's two.

        What it missed of ended prompts comes before where the running ones are: the end of one clears the page.
        """
        socket.tell("status", {**status_data(standing.remaining), "sid": socket.sid})
        if standing.node is not None:
            socket.tell("executing", {"node": standing.node})
        running = {record.prompt_id for record in standing.running}
        for entry in self._missed.take((socket.tenant, socket.sid)):
            if entry.run not in running:
                socket.push(entry)
        for record in standing.running:
            progress = self._translator.progress_of(record.tenant, record.prompt_id)
            for kind, data in so_far(record, progress):
                socket.tell(kind, data)

    def _sockets_of(self, tenant: TenantId) -> int:
        return sum(owner == tenant for owner, _ in self._by_id)

    def _audience(self, message: Outgoing) -> list[Socket]:
        if message.client_id is not None:
            socket = self._by_id.get((message.tenant, message.client_id))
            return [socket] if socket is not None and socket.takes(message.support) else []
        return [
            socket
            for (tenant, _), socket in self._by_id.items()
            if tenant == message.tenant and socket.takes(message.support)
        ]

    def _send_all(self, messages: list[Outgoing]) -> None:
        for message in messages:
            self.send(message)

    def _flush(self) -> None:
        self._send_all(self._translator.flush())

    async def _write(self, socket: Socket) -> None:
        """Write until the peer is gone; afterwards the connection is closed, so that the reader ends too."""
        try:
            await socket.write()
        except (ConnectionError, RuntimeError):  # closed under us: aiohttp says either
            _log.debug("Websocket %s went away while sending", socket.sid)
        socket.abort()

    async def _read(self, socket: Socket) -> None:
        """Take the feature exchange, which counts only as the first message; ignore all else."""
        is_first = True
        async for message in socket.connection:
            if message.type is WSMsgType.ERROR:
                break
            if is_first and message.type is WSMsgType.TEXT:
                self._exchange_features(socket, message.data)
            is_first = False

    def _exchange_features(self, socket: Socket, text: str) -> None:
        try:
            message = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            _log.warning("Websocket %s sent a message that is not JSON", socket.sid)
            return
        if not isinstance(message, dict) or message.get("type") != "feature_flags":
            return
        flags = message.get("data")
        socket.flags = flags if isinstance(flags, dict) else {}
        socket.tell("feature_flags", self.features)

    def _remove(self, socket: Socket) -> None:
        self._writers.pop(socket).cancel()
        if self._by_id.get((socket.tenant, socket.sid)) is socket:
            del self._by_id[socket.tenant, socket.sid]
            self._log_readers.pop((socket.tenant, socket.sid), None)
            self._missed.leave((socket.tenant, socket.sid), socket.unsent())


def _entry(message: Outgoing) -> Entry:
    run = message.run if message.client_id is not None and message.is_lasting else None
    return Entry(message.frame(), message.is_droppable, run)
