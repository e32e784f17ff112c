"""Talk to a server as the page does: prompts and files over HTTP, what happens over the websocket."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from comfyserverless.core.errors import ComfyServerlessError, ConfigError

#: How long a server may take to begin an answer; runs themselves have no limit.
_ANSWER_S = 60.0
_JSON_ONLY = aiohttp.WSMsgType.TEXT


class ConnectionFailed(ComfyServerlessError):
    """A server cannot be reached, or answers what none of its kind answers."""


class Refused(ComfyServerlessError):
    """The server refused a request; status: of HTTP, answer: its JSON, None if it was none."""

    def __init__(self, message: str, status: int, answer: Any) -> None:
        super().__init__(message)
        self.status = status
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Message:
    """One JSON message of the websocket."""

    kind: str
    data: dict[str, Any]


class Connection:
    """Requests to one server, as one client; use `connect`."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self.client_id = uuid.uuid4().hex

    async def get(self, path: str) -> Any:
        """Return the JSON of a GET. Raises Refused, ConnectionFailed."""
        return await self._request("GET", path)

    async def post(self, path: str, body: Any) -> Any:
        """Return the JSON of a POST, None if the answer is empty. Raises Refused, ConnectionFailed."""
        return await self._request("POST", path, json=body)

    async def upload(self, file: Path) -> str:
        """Send a file into the server's input folder; returns the name that it has there."""
        with file.open("rb") as content:
            form = aiohttp.FormData()
            form.add_field("image", content, filename=file.name)
            answer = await self._request("POST", "/upload/image", data=form)
        folder = answer.get("subfolder")
        return f"{folder}/{answer['name']}" if folder else str(answer["name"])

    async def download(self, entry: dict[str, Any], target: Path) -> None:
        """Save the file of an output entry; target must not exist. Raises Refused, ConnectionFailed."""
        query = {key: str(entry.get(key, "")) for key in ("filename", "subfolder", "type")}
        try:
            async with self._session.get("/view", params=query) as answer:
                if answer.status != 200:
                    raise Refused(
                        f"{entry.get('filename')}: the server answers {answer.status}", answer.status, None
                    )
                with target.open("xb") as out:
                    async for part in answer.content.iter_chunked(1 << 16):
                        out.write(part)
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise ConnectionFailed(f"cannot reach {self._url}: {exc or type(exc).__name__}") from exc

    @asynccontextmanager
    async def socket(self) -> AsyncIterator[AsyncIterator[Message]]:
        """Open the websocket; what it gives ends when the server closes it."""
        try:
            socket = await self._session.ws_connect(f"/ws?clientId={self.client_id}", max_msg_size=0)
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise ConnectionFailed(
                f"cannot open the websocket of {self._url}: {exc or type(exc).__name__}"
            ) from exc
        async with socket:
            yield _messages(socket)

    async def _request(self, method: str, path: str, **content: Any) -> Any:
        try:
            async with self._session.request(method, path, **content) as answer:
                text = await answer.text()
                status = answer.status
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise ConnectionFailed(f"cannot reach {self._url}: {exc or type(exc).__name__}") from exc
        try:
            parsed = json.loads(text) if text else None
        except ValueError:
            parsed = None
            if status < 400:
                raise ConnectionFailed(f"{self._url}{path} does not answer JSON: is it ComfyUI?") from None
        if status >= 400:
            raise Refused(_reason(path, status, parsed), status, parsed)
        return parsed


@asynccontextmanager
async def connect(url: str, token: str | None) -> AsyncIterator[Connection]:
    """Give requests to a server; nothing is sent yet. Raises ConnectionFailed for what is no address.

    Raises ConfigError for what is no token.
    """
    if token is not None and not token.strip().isprintable():
        raise ConfigError("the access token holds characters that no token has")
    headers = {} if token is None else {"Authorization": f"Bearer {token.strip()}"}
    limits = aiohttp.ClientTimeout(total=None, sock_connect=_ANSWER_S, sock_read=None)
    try:
        session = aiohttp.ClientSession(url, headers=headers, timeout=limits)
    except (ValueError, AssertionError) as exc:
        raise ConnectionFailed(f"{url} is not the address of a server, as in http://127.0.0.1:8188") from exc
    async with session:
        yield Connection(session, url)


async def _messages(socket: aiohttp.ClientWebSocketResponse) -> AsyncIterator[Message]:
    async for message in socket:
        if message.type is not _JSON_ONLY:
            continue
        body = json.loads(message.data)
        if isinstance(body, dict) and isinstance(body.get("data"), dict):
            yield Message(str(body.get("type")), body["data"])


def _reason(path: str, status: int, answer: Any) -> str:
    """Say in one line why a request was refused."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        message, details = error.get("message", "refused"), error.get("details")
        return f"{message}: {details}" if details and details != message else str(message)
    hint = " (give --token)" if status == 401 else ""
    return f"the server answers {status} for {path}{hint}"
