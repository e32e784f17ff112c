"""Talk to a server as an API client does: post a prompt, listen on the websocket, fetch what came out."""

from __future__ import annotations

import asyncio
import json
import struct
import uuid
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import aiohttp

from tests.support.server import PATIENCE_S

PREVIEW_IMAGE = 1
"""Type number of a binary websocket frame that holds `uint32 format (1 JPEG, 2 PNG)` and the image bytes."""


@dataclass(slots=True)
class RunResult:
    """What a client saw of one prompt.

    messages: (type, data) of the JSON messages of this prompt, in order; previews: image bytes of the binary
    frames in between; history: the prompt's entry of `/history/{id}`.
    """

    prompt_id: str
    messages: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    previews: list[bytes] = field(default_factory=list)
    history: dict[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """Return the final lifecycle message: execution_success, execution_error or execution_interrupted."""
        ends = ("execution_success", "execution_error", "execution_interrupted")
        return next((kind for kind, _ in reversed(self.messages) if kind in ends), "none")

    def executed_nodes(self) -> list[str]:
        """List the nodes that ran, in order, without the cached ones."""
        return [
            data["node"] for kind, data in self.messages if kind == "executing" and data["node"] is not None
        ]

    def cached_nodes(self) -> list[str]:
        """List the nodes whose result came from the cache."""
        return [node for kind, data in self.messages if kind == "execution_cached" for node in data["nodes"]]

    def images(self) -> list[dict[str, Any]]:
        """List the image entries of all output nodes."""
        return [image for output in self.history["outputs"].values() for image in output.get("images", [])]


class Client:
    """One API client with its own websocket session; `async with Client(url) as client`.

    token: of a tenant, for a server with accounts.
    """

    def __init__(self, url: str, client_id: str | None = None, token: str | None = None) -> None:
        self.url = url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.client_id = client_id or uuid.uuid4().hex
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None

    async def __aenter__(self) -> Client:
        self._session = aiohttp.ClientSession(self.url, headers=self._headers)
        self._socket = await self._session.ws_connect(f"/ws?clientId={self.client_id}", max_msg_size=0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.socket.close()
        await self.session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """Return the HTTP session, for requests that have no method here."""
        assert self._session is not None, "use `async with`"
        return self._session

    @property
    def socket(self) -> aiohttp.ClientWebSocketResponse:
        """Return the websocket, for tests of single messages."""
        assert self._socket is not None, "use `async with`"
        return self._socket

    async def get(self, path: str) -> Any:
        """Return the JSON of a GET; raises aiohttp.ClientResponseError for 4xx and 5xx."""
        async with self.session.get(path) as answer:
            answer.raise_for_status()
            return await answer.json(content_type=None)

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Return status and JSON (None for an empty body) of a POST, whatever the status is."""
        async with self.session.post(path, json=body) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text else None

    async def submit(self, prompt: dict[str, Any], **fields: Any) -> str:
        """Submit an API graph; returns the prompt id, raises AssertionError when it is rejected."""
        status, answer = await self.post("/prompt", {"prompt": prompt, "client_id": self.client_id, **fields})
        assert status == 200, answer
        return str(answer["prompt_id"])

    async def run(self, prompt: dict[str, Any], *, within_s: float = PATIENCE_S, **fields: Any) -> RunResult:
        """Submit an API graph and listen until it ended; see RunResult. Raises TimeoutError."""
        async with asyncio.timeout(within_s):
            return await self.listen(await self.submit(prompt, **fields))

    async def listen(self, prompt_id: str) -> RunResult:
        """Collect the messages of a submitted prompt until its last one, then its history."""
        result = RunResult(prompt_id)
        async for message in self.socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                kind, _format = struct.unpack(">II", message.data[:8])
                if kind == PREVIEW_IMAGE:
                    result.previews.append(message.data[8:])
                continue
            body = json.loads(message.data)
            if body["data"].get("prompt_id") == prompt_id:
                result.messages.append((body["type"], body["data"]))
                if body["type"] == "executing" and body["data"]["node"] is None:
                    break
        result.history = (await self.get(f"/history/{prompt_id}"))[prompt_id]
        return result

    async def wait_for_workers(self, *, within_s: float = PATIENCE_S) -> list[dict[str, Any]]:
        """Return the workers once all of them are ready or busy. Raises TimeoutError."""
        async with asyncio.timeout(within_s):
            while True:
                workers: list[dict[str, Any]] = (await self.get("/comfyserverless/workers"))["workers"]
                if workers and all(worker["state"] in ("ready", "busy") for worker in workers):
                    return workers
                await asyncio.sleep(0.1)

    async def image(self, entry: dict[str, Any]) -> bytes:
        """Return the bytes of an image entry of a node's output."""
        query = {key: entry[key] for key in ("filename", "subfolder", "type")}
        async with self.session.get("/view", params=query) as answer:
            answer.raise_for_status()
            return await answer.read()
