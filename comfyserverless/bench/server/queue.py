"""Look at a long queue and change it: list, page, cancel, delete, put in front, clear.

A slow prompt runs meanwhile, so that nothing but what is measured takes prompts from the queue.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comfyserverless.bench.server.clients import Requests
from comfyserverless.bench.server.load import graph_of
from comfyserverless.bench.server.process import server
from comfyserverless.bench.serving import BenchError

BAR_MS = 200.0
LEAST = 2_000
"""What is measured takes some hundred prompts from the queue."""

_AT_ONCE = 16
_SLOW_NODES = 2_000
_SLOW_SIDE_PX = 1_500
_PAGE = 200
_SOME = 100
_FRONT = -1e9


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """What to do. length: prompts that wait; rounds: of every operation; flags: more of the server's."""

    length: int = 10_000
    rounds: int = 7
    flags: tuple[str, ...] = ()


def slow_graph() -> dict[str, Any]:
    """Return a prompt that takes minutes, in API form: it scales a picture again and again."""
    graph = graph_of(0, "new")
    source = "1"
    for nth in range(_SLOW_NODES):
        inputs = {
            "image": [source, 0],
            "upscale_method": "lanczos",
            "crop": "disabled",
            "height": _SLOW_SIDE_PX,
        }
        source = f"s{nth}"
        graph[source] = {"class_type": "ImageScale", "inputs": {**inputs, "width": _SLOW_SIDE_PX + nth}}
    graph["2"]["inputs"]["images"] = [source, 0]
    return graph


def measure(options: QueueOptions) -> dict[str, Any]:
    """Measure; returns the result. Raises BenchError."""
    flags = ("--workers", "1", "--threads", "1", *options.flags)
    with (
        tempfile.TemporaryDirectory(prefix="comfyserverless-bench-") as name,
        server(Path(name), flags) as started,
    ):
        empty_mb = started.memory_mb()
        result = asyncio.run(_Queue(started.port, options).run())
        full_mb = started.memory_mb()
    return {
        "bench": "serve",
        "queue": options.length,
        **result,
        "memory_empty_mb": round(empty_mb, 1),
        "memory_end_mb": round(full_mb, 1),
    }


class _Queue:
    def __init__(self, port: int, options: QueueOptions) -> None:
        self._requests = Requests(port)
        self._options = options
        self._waiting: list[str] = []
        self._sent = 0

    async def run(self) -> dict[str, Any]:
        """Fill the queue, measure every operation, and empty it."""
        await self._post("/prompt", {"prompt": slow_graph(), "number": _FRONT})
        began_s = time.monotonic()
        await asyncio.gather(*(self._fill() for _ in range(_AT_ONCE)))
        filled_s = time.monotonic() - began_s
        operations: Mapping[str, Callable[[], Awaitable[object]]] = {
            "list": self._list,
            "jobs_first_page": lambda: self._jobs("status=pending", 0),
            "jobs_middle_page": lambda: self._jobs("status=pending,completed", self._options.length // 2),
            "jobs_by_workflow": lambda: self._jobs("workflow_id=none", 0),
            "delete_one": lambda: self._post("/queue", {"delete": [self._waiting.pop()]}),
            "delete_some": lambda: self._post("/queue", {"delete": self._take(_SOME)}),
            "cancel": lambda: self._post(f"/api/jobs/{self._waiting.pop()}/cancel", {}),
            "cancel_some": lambda: self._post("/api/jobs/cancel", {"job_ids": self._take(_SOME)}),
            "submit": self._submit,
            "submit_in_front": lambda: self._submit(front=True),
            "submit_in_the_middle": lambda: self._submit(number=self._options.length / 2),
            "move_to_front": self._move_to_front,
        }
        worst_ms = {name: await self._worst_ms(ask, self._options.rounds) for name, ask in operations.items()}
        worst_ms["clear"] = await self._worst_ms(lambda: self._post("/queue", {"clear": True}), 1)
        await self._post("/interrupt", {})
        self._requests.close()
        slowest = max(worst_ms, key=lambda name: worst_ms[name])
        return {
            "slowest": slowest,
            "slowest_ms": worst_ms[slowest],
            "bar_ms": BAR_MS,
            "worst_ms": worst_ms,
            "accepted_per_s": round(self._options.length / filled_s, 1),
        }

    async def _worst_ms(self, ask: Callable[[], Awaitable[object]], rounds: int) -> float:
        worst_s = 0.0
        for _ in range(rounds):
            began_s = time.monotonic()
            await ask()
            worst_s = max(worst_s, time.monotonic() - began_s)
        return round(1e3 * worst_s, 1)

    def _take(self, count: int) -> list[str]:
        """Take prompts from all over the queue."""
        step = max(1, len(self._waiting) // count)
        taken = self._waiting[::step][:count]
        gone = set(taken)
        self._waiting = [each for each in self._waiting if each not in gone]
        return taken

    async def _fill(self) -> None:
        while self._sent < self._options.length:
            await self._submit()

    async def _submit(self, **more: object) -> None:
        self._sent += 1
        prompt_id = str(uuid.uuid4())
        await self._post("/prompt", {"prompt": graph_of(self._sent, "new"), "prompt_id": prompt_id, **more})
        self._waiting.append(prompt_id)

    async def _move_to_front(self) -> None:
        """Do what reordering is: take a prompt away and send it again with another number."""
        await self._post("/queue", {"delete": [self._waiting.pop()]})
        await self._submit(front=True)

    async def _list(self) -> None:
        answer = await self._get("/queue")
        if len(answer) < self._options.length * 100:
            raise BenchError(f"the queue is not full: the list of it has {len(answer)} bytes")

    async def _jobs(self, query: str, offset: int) -> None:
        await self._get(f"/api/jobs?{query}&limit={_PAGE}&offset={offset}")

    async def _get(self, path: str) -> bytes:
        return _checked(path, *await self._requests.send("GET", path))

    async def _post(self, path: str, body: Mapping[str, object]) -> bytes:
        return _checked(path, *await self._requests.send("POST", path, json.dumps(body).encode()))


def _checked(path: str, status: int, answer: bytes) -> bytes:
    if status != 200:
        raise BenchError(f"{path} was answered with {status}: {answer[:500].decode(errors='replace')}")
    return answer


def show(result: Mapping[str, Any]) -> None:
    """Print the result, and the machine-readable form as the last line."""
    lines = [f"{result['queue']} prompts wait; the slowest of several tries, in ms (the bar is {BAR_MS:g}):"]
    lines += [
        f"  {name.replace('_', ' '):<24}{worst_ms:>10.1f}" for name, worst_ms in result["worst_ms"].items()
    ]
    lines += [
        f"filled at {result['accepted_per_s']} prompts/s; server memory {result['memory_empty_mb']} MB empty,"
        f" {result['memory_end_mb']} MB at the end",
        json.dumps(result),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
