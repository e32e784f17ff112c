"""Pass a request on to the node host as it came, and its answer back piece by piece.

Credentials stay here: packs are told who has sent a request, not with what. A handler that does not answer, or
dies, costs its own request alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    DummyCookieJar,
    UnixConnector,
    WSMsgType,
    WSServerHandshakeError,
    web,
)
from multidict import CIMultiDict
from yarl import URL

from comfyserverless.core.hosting import SERVED_HEADER
from comfyserverless.server.access import COOKIE
from comfyserverless.server.border import problem

_log = logging.getLogger(__name__)

ANSWER_WITHIN_S = 300.0
"""How long a handler may take to begin its answer: some download models in it."""

_CONNECT_WITHIN_S = 5.0
_PIECE_BYTES = 64 << 10
_HOP_BY_HOP = frozenset(
    [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)
_CREDENTIALS = frozenset(("authorization", "x-api-key", SERVED_HEADER.lower()))
_NO_BODY = (204, 304)
_AUTOMATIC = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class Forwarder:
    """Pass requests on to one unix socket. has_accounts: credentials of requests are ours."""

    def __init__(self, socket: str, *, has_accounts: bool, answer_within_s: float = ANSWER_WITHIN_S) -> None:
        self.socket = socket
        self._has_accounts = has_accounts
        self._answer_within_s = answer_within_s
        self._session = ClientSession(
            connector=UnixConnector(socket, limit=0),
            auto_decompress=False,
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=None, sock_connect=_CONNECT_WITHIN_S),
            skip_auto_headers=_AUTOMATIC,
        )

    async def close(self) -> None:
        """Drop all connections."""
        await self._session.close()

    async def forward(self, request: web.Request, served: str) -> web.StreamResponse:
        """Answer a request with what the host says: 502 if it cannot, 504 if it does not in time.

        served: the value of SERVED_HEADER.
        """
        headers = self._request_headers(request, served)
        try:
            if request.headers.get("Upgrade", "").lower() == "websocket":
                return await self._forward_socket(request, headers)
            return await self._forward_request(request, headers)
        except TimeoutError:
            _log.warning("%s %s: the node packs did not answer in time", request.method, request.path)
            return problem(request, "timeout", "The node packs did not answer in time", 504)
        except (ClientError, ConnectionError) as exc:
            _log.warning("%s %s: the node packs cannot answer: %s", request.method, request.path, exc)
            return problem(request, "bad_gateway", "The node packs cannot answer", 502)

    async def _forward_request(self, request: web.Request, headers: CIMultiDict[str]) -> web.StreamResponse:
        body = _Body(request)
        data = body.pieces() if request.can_read_body else None
        asking = self._session.request(
            request.method, _address(request), headers=headers, data=data, allow_redirects=False
        )
        try:
            answering = await asyncio.wait_for(asking, self._answer_within_s)
        except ClientError as exc:
            if body.is_too_large:
                raise web.HTTPRequestEntityTooLarge(request.client_max_size, body.total_bytes) from exc
            raise
        async with answering as given:
            answer = _answer_like(given)
            await answer.prepare(request)
            if request.method == "HEAD" or given.status in _NO_BODY:
                return answer
            await _copy(given, answer, request)
            return answer

    async def _forward_socket(self, request: web.Request, headers: CIMultiDict[str]) -> web.StreamResponse:
        protocols = [name.strip() for name in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        for name in [name for name in headers if name.lower().startswith("sec-websocket-")]:
            headers.popall(name, None)
        opening = self._session.ws_connect(
            _address(request), headers=headers, protocols=tuple(filter(None, protocols)), max_msg_size=0
        )
        try:
            theirs = await asyncio.wait_for(opening, self._answer_within_s)
        except WSServerHandshakeError as exc:
            status = exc.status if exc.status >= 400 else 502
            return problem(request, "bad_gateway", "The node packs refuse a websocket here", status)
        async with theirs:
            ours = web.WebSocketResponse(
                protocols=(theirs.protocol,) if theirs.protocol else (), max_msg_size=0
            )
            await ours.prepare(request)
            await _relay(ours, theirs)
            return ours

    def _request_headers(self, request: web.Request, served: str) -> CIMultiDict[str]:
        dropped = _HOP_BY_HOP | _named_in(request.headers.getall("Connection", ()))
        if self._has_accounts:
            dropped |= _CREDENTIALS
        kept = CIMultiDict(
            (name, value) for name, value in request.headers.items() if name.lower() not in dropped
        )
        if self._has_accounts and "Cookie" in kept:
            cookies = [each.strip() for each in kept.pop("Cookie").split(";")]
            others = [each for each in cookies if not each.startswith(f"{COOKIE}=")]
            if others:
                kept["Cookie"] = "; ".join(others)
        if "Content-Encoding" in kept:  # our server has undone it
            kept.popall("Content-Encoding")
            kept.popall("Content-Length", None)
        kept[SERVED_HEADER] = served
        return kept


def _address(request: web.Request) -> URL:
    """Return the address in the host: path and query as they came, without another decoding."""
    return URL(f"http://packs{request.raw_path}", encoded=True)


def _named_in(values: Iterable[str]) -> frozenset[str]:
    return frozenset(name.strip().lower() for value in values for name in value.split(","))


class _Body:
    """The body of a request on its way."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.total_bytes = 0

    @property
    def is_too_large(self) -> bool:
        """Tell whether it is larger than its sender may send."""
        return 0 < self._request.client_max_size < self.total_bytes

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield it piece by piece. Raises ConnectionError if it gets too large: nobody takes it for whole."""
        async for piece in self._request.content.iter_chunked(_PIECE_BYTES):
            self.total_bytes += len(piece)
            if self.is_too_large:
                raise ConnectionError("the body is larger than the limit")
            yield piece


def _answer_like(given: ClientResponse) -> web.StreamResponse:
    dropped = _HOP_BY_HOP | _named_in(given.headers.getall("Connection", ()))
    answer = web.StreamResponse(status=given.status, reason=given.reason)
    for name, value in given.headers.items():
        if name.lower() not in dropped and not (
            name.lower() == "set-cookie" and value.startswith(f"{COOKIE}=")
        ):
            answer.headers.add(name, value)
    return answer


async def _copy(given: ClientResponse, answer: web.StreamResponse, request: web.Request) -> None:
    """Copy a body. One that breaks off is broken off here, too: its reader must not take it for whole."""
    try:
        async for piece in given.content.iter_any():
            await answer.write(piece)
        await answer.write_eof()
    except (ClientError, ConnectionError) as exc:
        _log.warning("%s %s: the answer of a node pack broke off: %s", request.method, request.path, exc)
        if request.transport is not None:
            request.transport.abort()


async def _relay(ours: web.WebSocketResponse, theirs: ClientWebSocketResponse) -> None:
    """Pass messages on both ways until one side closes, and close the other with its code."""
    ways = [asyncio.ensure_future(_pass_on(ours, theirs)), asyncio.ensure_future(_pass_on(theirs, ours))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        code = theirs.close_code or ours.close_code or 1000
        for side in (theirs, ours):
            with suppress(ClientError, ConnectionError, RuntimeError):
                await side.close(code=code if code < 5000 and code not in (1005, 1006) else 1001)


async def _pass_on(
    source: web.WebSocketResponse | ClientWebSocketResponse,
    target: web.WebSocketResponse | ClientWebSocketResponse,
) -> None:
    async for message in source:
        if message.type is WSMsgType.TEXT:
            await target.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await target.send_bytes(message.data)
