"""Run one prompt: submit it, follow it to its end, and take it back when the user gives up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from comfyserverless.client.connection import Connection, ConnectionFailed, Message, Refused
from comfyserverless.client.progress import ProgressLine
from comfyserverless.core.errors import ComfyServerlessError

_POLL_S = 1.0
#: How long a server may be away (it may restart) before a run is given up.
_PATIENCE_S = 60.0


class RunFailed(ComfyServerlessError):
    """A run ended without its outputs; the message names the node and what it said."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a finished run has made: entries of files (filename, subfolder, type), and texts by node title."""

    files: tuple[dict[str, Any], ...] = ()
    texts: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = field(default=())


class Runner:
    """Runs of one prompt on one connection."""

    def __init__(self, connection: Connection, prompt: dict[str, Any], workflow: dict[str, Any] | None) -> None:
        self._connection = connection
        self._prompt = prompt
        self._workflow = workflow

    async def run(self, progress: ProgressLine) -> Ended:
        """Submit the prompt and wait for its end. Raises Refused (it cannot run), RunFailed, ConnectionFailed.

        When it is cancelled, the prompt is taken from the server, too.
        """
        async with self._connection.socket() as messages:
            answer = await self._submit()
            prompt_id = str(answer["prompt_id"])
            try:
                await self._follow(prompt_id, messages, progress)
                entry = await self._history(prompt_id)
            except asyncio.CancelledError:
                await asyncio.shield(self._take_back(prompt_id))
                raise
        return self._ended(entry, tuple(problem_lines(answer, self._prompt)))

    async def _submit(self) -> dict[str, Any]:
        body: dict[str, Any] = {"prompt": self._prompt, "client_id": self._connection.client_id}
        if self._workflow is not None:
            body["extra_data"] = {"extra_pnginfo": {"workflow": self._workflow}}
        answer = await self._connection.post("/prompt", body)
        if not isinstance(answer, dict) or "prompt_id" not in answer:
            raise ConnectionFailed("the server does not answer as ComfyUI does")
        return answer

    async def _follow(self, prompt_id: str, messages: AsyncIterator[Message], progress: ProgressLine) -> None:
        """Listen until the last message of the prompt, or until the server closes the websocket."""
        async for message in messages:
            data = message.data
            if data.get("prompt_id") != prompt_id:
                continue
            match message.kind:
                case "execution_cached":
                    progress.skip(len(data.get("nodes") or ()))
                case "executing":
                    if data.get("node") is None:
                        return
                    progress.begin(self._title(str(data["node"])))
                case "progress":
                    progress.step(self._title(str(data.get("node"))), data.get("value", 0), data.get("max", 1))

    async def _history(self, prompt_id: str) -> dict[str, Any]:
        """Return the prompt's entry once it is there; the server may be away for a while."""
        since_s = asyncio.get_running_loop().time()
        while True:
            try:
                answer = await self._connection.get(f"/history/{prompt_id}")
                if isinstance(answer, dict) and isinstance(answer.get(prompt_id), dict):
                    return dict(answer[prompt_id])
                since_s = asyncio.get_running_loop().time()
            except (ConnectionFailed, Refused):
                if asyncio.get_running_loop().time() - since_s > _PATIENCE_S:
                    raise
            await asyncio.sleep(_POLL_S)

    async def _take_back(self, prompt_id: str) -> None:
        try:
            await self._connection.post("/queue", {"delete": [prompt_id]})
            await self._connection.post("/interrupt", {"prompt_id": prompt_id})
        except (ConnectionFailed, Refused):
            return

    def _ended(self, entry: dict[str, Any], warnings: tuple[str, ...]) -> Ended:
        status = entry.get("status")
        for kind, data in (status.get("messages") or ()) if isinstance(status, dict) else ():
            if kind == "execution_error":
                raise RunFailed(self._failure(data))
            if kind == "execution_interrupted":
                raise RunFailed("the run was interrupted")
        files, texts = [], []
        for node_id, output in (entry.get("outputs") or {}).items():
            for key, values in output.items() if isinstance(output, dict) else ():
                for value in values if isinstance(values, list) else ():
                    if isinstance(value, dict) and isinstance(value.get("filename"), str):
                        files.append(value)
                    elif key == "text" and isinstance(value, str):
                        texts.append((self._title(node_id), value))
        return Ended(tuple(files), tuple(texts), warnings)

    def _failure(self, data: dict[str, Any]) -> str:
        node_id = str(data.get("node_id"))
        node = self._prompt.get(node_id)
        name = node_name(node_id, node if isinstance(node, dict) else {"class_type": data.get("node_type")})
        message = str(data.get("exception_message", "")).strip()
        return f"{name}: {data.get('exception_type', 'error')}: {message}"

    def _title(self, node_id: str) -> str:
        node = self._prompt.get(node_id, {})
        meta = node.get("_meta")
        title = meta.get("title") if isinstance(meta, dict) else None
        return str(title or node.get("class_type") or node_id)


def node_name(node_id: str, node: dict[str, Any]) -> str:
    """Name a node for people: id, class, and the title if it says more."""
    kind = str(node.get("class_type"))
    meta = node.get("_meta")
    title = meta.get("title") if isinstance(meta, dict) else None
    return f"node {node_id} ({kind} {title!r})" if title and title != kind else f"node {node_id} ({kind})"


def problem_lines(answer: Any, prompt: dict[str, Any]) -> list[str]:
    """Return one line for each problem that the server has with a node."""
    errors = answer.get("node_errors") if isinstance(answer, dict) else None
    return [
        f"{node_name(node_id, prompt.get(node_id) or found)}: {error.get('message')}: {error.get('details')}"
        for node_id, found in (errors.items() if isinstance(errors, dict) else ())
        for error in found.get("errors", ())
    ]
