"""Hold the worker's end of the link: a websocket client that threads may send on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect, unix_connect

from comfyserverless.core.messages import FromWorker, ToWorker

_OPEN_TIMEOUT_S = 20.0
_PING_INTERVAL_S = 20.0


class LinkLost(ConnectionError):
    """The other end is gone."""


def dial(address: str) -> ClientConnection:
    """Connect to `unix:/path` or a ws:// address. Raises OSError or TimeoutError if nobody answers.

    The result must be used in a `with` statement.
    """
    options: dict[str, Any] = {"compression": None, "max_size": None, "open_timeout": _OPEN_TIMEOUT_S}
    scheme, _, rest = address.partition(":")
    if scheme == "unix":
        # The kernel tells at once when the other end of a unix socket is gone: no pings needed.
        connection: ClientConnection = unix_connect(rest, "ws://localhost/link", ping_interval=None, **options)
    else:
        connection = connect(address, ping_interval=_PING_INTERVAL_S, proxy=None, **options)
    return connection


class Link:
    """Send and receive messages on an open connection; `send` may be called from any thread."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._encoder_of = threading.local()
        self._decoder: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)

    def send(self, message: FromWorker) -> None:
        """Send one message. Raises LinkLost if the other end is gone."""
        encoder = getattr(self._encoder_of, "encoder", None)
        if encoder is None:
            encoder = self._encoder_of.encoder = msgspec.msgpack.Encoder()
        try:
            self._connection.send(encoder.encode(message))
        except ConnectionClosed as exc:
            raise LinkLost("the control process closed the link") from exc

    def round_trip_s(self, timeout_s: float) -> float | None:
        """Measure how long the other end takes to answer a ping; None if it does not within the timeout.

        Raises LinkLost if the other end is gone.
        """
        begin_s = time.perf_counter()
        try:
            has_answered = self._connection.ping().wait(timeout_s)
        except ConnectionClosed as exc:
            raise LinkLost("the control process closed the link") from exc
        return time.perf_counter() - begin_s if has_answered else None

    def receive(self) -> Iterator[ToWorker]:
        """Yield messages as they come, for ever. Raises LinkLost when the other end is gone."""
        while True:
            try:
                frame = self._connection.recv(decode=False)
            except ConnectionClosed as exc:
                raise LinkLost("the control process closed the link") from exc
            yield self._decoder.decode(frame)
