"""Load a server with many websocket clients and many prompts a second, and see how long it takes to accept one.

Prompts are sent at their times whatever the server does, each for one of the clients, and each client must be
told of the start and the end of its prompts. The clients run in this process, on the same cores.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comfyserverless.bench.server.clients import Requests, SocketClient, open_sockets
from comfyserverless.bench.server.process import ServerProcess, allow_connections, server
from comfyserverless.bench.serving import BenchError

GRAPHS = ("new", "cached")
_SIDE_PX = 64
_WARM_UP_S = 2.0
_SETTLED_PART = 0.2
_SAMPLES_PER_S = 2
_DONE_WITHIN_S = 600.0
_WHO = ("server", "workers", "bench")
_TOLD = ("execution_start", "execution_success")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What to do.

    clients: websockets; prompts_per_s, seconds: of sending; graph: `new`, every prompt makes and writes a small
    picture of its own, or `cached`, all ask for the same one. flags: more of the server's.
    """

    clients: int = 1_000
    prompts_per_s: float = 200.0
    seconds: float = 60.0
    graph: str = "new"
    flags: tuple[str, ...] = ()


@dataclass(slots=True)
class Sent:
    """What came of the prompts. accept_ms: from request to answer; late_ms: how late the request went out."""

    accept_ms: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    accepted: int = 0


def graph_of(number: int, kind: str) -> dict[str, Any]:
    """Return a prompt that a worker makes in about a millisecond, in API form."""
    color = number % (1 << 24) if kind == "new" else 0
    size = {"width": _SIDE_PX, "height": _SIDE_PX, "batch_size": 1, "color": color}
    return {
        "1": {"class_type": "EmptyImage", "inputs": size},
        "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
    }


def measure(options: LoadOptions) -> dict[str, object]:
    """Measure; returns the result. Raises BenchError, and ConfigError if there cannot be so many clients."""
    allow_connections(options.clients)
    with tempfile.TemporaryDirectory(prefix="comfyserverless-bench-") as name:
        flags = ("--workers", "1", "--threads", "1", *options.flags)
        with server(Path(name), flags) as started:
            return asyncio.run(_Load(started, options).run())


class _Load:
    def __init__(self, started: ServerProcess, options: LoadOptions) -> None:
        self._server = started
        self._options = options
        self._requests = Requests(started.port)
        self._counts: Counter[str] = Counter()
        self._sent = Sent()
        self._memory_mb: list[float] = []

    async def run(self) -> dict[str, object]:
        """Open the clients, send, wait until all is done, and sum up."""
        names = [f"client-{nth}" for nth in range(self._options.clients)]
        try:
            sockets = await open_sockets(self._server.port, names, self._counts)
        except OSError as exc:
            raise BenchError(f"not all clients could connect: {exc}\n{self._server.log_end()}") from exc
        await self._warm_up()
        self._counts.clear()
        watching = asyncio.create_task(self._watch())
        began_s, cpu_s = time.monotonic(), (*self._server.cpu_s(), time.process_time())
        await self._send(names)
        sent_s = time.monotonic() - began_s
        done_in_time = self._counts["execution_success"]
        watching.cancel()
        await self._wait_done()
        done_s = time.monotonic() - began_s
        await asyncio.sleep(0.5)  # what was sent last is on its way
        spent_s = (*self._server.cpu_s(), time.process_time())
        result = self._summary(sockets, sent_s, done_s, done_in_time)
        costs = [
            (after - before) / max(1, self._sent.accepted) for before, after in zip(cpu_s, spent_s, strict=True)
        ]
        result |= {
            f"{who}_cpu_ms_per_prompt": round(1e3 * cost, 2) for who, cost in zip(_WHO, costs, strict=True)
        }
        for socket in sockets:
            socket.close()
        self._requests.close()
        return result

    async def _warm_up(self) -> None:
        """Let the first prompt do what happens once."""
        status, answer = await self._requests.send("POST", "/prompt", self._body(0, "nobody"))
        if status != 200:
            raise BenchError(f"the server refuses the prompt: {answer.decode()}")
        await asyncio.sleep(_WARM_UP_S)

    def _body(self, number: int, client: str) -> bytes:
        return json.dumps({"prompt": graph_of(number, self._options.graph), "client_id": client}).encode()

    async def _send(self, names: list[str]) -> None:
        """Send every prompt at its time."""
        count = round(self._options.prompts_per_s * self._options.seconds)
        began_s, sending = time.monotonic(), set()
        for number in range(count):
            due_s = began_s + number / self._options.prompts_per_s
            if (wait_s := due_s - time.monotonic()) > 0:
                await asyncio.sleep(wait_s)
            body = self._body(number + 1, names[number % len(names)])
            task = asyncio.create_task(self._post(body, due_s))
            sending.add(task)
            task.add_done_callback(sending.discard)
        await asyncio.gather(*sending)

    async def _post(self, body: bytes, due_s: float) -> None:
        began_s = time.monotonic()
        try:
            status, _ = await self._requests.send("POST", "/prompt", body)
        except (OSError, EOFError) as exc:
            self._sent.errors[type(exc).__name__] += 1
            return
        self._sent.accept_ms.append(1e3 * (time.monotonic() - began_s))
        self._sent.late_ms.append(1e3 * (began_s - due_s))
        if status == 200:
            self._sent.accepted += 1
        else:
            self._sent.errors[str(status)] += 1

    async def _watch(self) -> None:
        """Note the memory that the server takes while prompts are sent."""
        while True:
            self._memory_mb.append(self._server.memory_mb())
            await asyncio.sleep(1 / _SAMPLES_PER_S)

    async def _wait_done(self) -> None:
        """Wait until nothing waits or runs any more. Raises BenchError."""
        deadline_s = time.monotonic() + _DONE_WITHIN_S
        while True:
            _, answer = await self._requests.send("GET", "/prompt")
            if json.loads(answer)["exec_info"]["queue_remaining"] == 0:
                return
            if time.monotonic() > deadline_s:
                raise BenchError(f"prompts are left {_DONE_WITHIN_S:g} s after the last one: {answer.decode()}")
            await asyncio.sleep(0.2)

    def _summary(
        self, sockets: list[SocketClient], sent_s: float, done_s: float, done_in_time: int
    ) -> dict[str, object]:
        sent, memory_mb = self._sent, self._memory_mb
        settled = round(len(memory_mb) * _SETTLED_PART)
        start_mb, end_mb = memory_mb[settled], memory_mb[-1]
        delivered = {kind: self._counts[kind] for kind in _TOLD}
        return {
            "bench": "serve",
            "graph": self._options.graph,
            "clients": len(sockets),
            "sent_per_s": round((sent.accepted + sent.errors.total()) / sent_s, 1),
            "seconds": round(sent_s, 1),
            "errors": sent.errors.total(),
            "error_kinds": dict(sent.errors),
            "clients_cut_off": sum(socket.is_lost for socket in sockets),
            "p50_ms": round(percentile(sent.accept_ms, 0.50), 2),
            "p99_ms": round(percentile(sent.accept_ms, 0.99), 2),
            "most_ms": round(max(sent.accept_ms, default=0.0), 2),
            "sender_late_p99_ms": round(percentile(sent.late_ms, 0.99), 2),
            "prompts_per_s": round(done_in_time / sent_s, 1),
            "queue_at_the_end": sent.accepted - done_in_time,
            "all_done_after_s": round(done_s, 1),
            "memory_start_mb": round(start_mb, 1),
            "memory_end_mb": round(end_mb, 1),
            "memory_growth_mb": round(end_mb - start_mb, 1),
            "ws_delivered": self._counts.total(),
            "ws_lost": sum(max(0, sent.accepted - count) for count in delivered.values()),
            "ws_kinds": dict(self._counts.most_common()),
        }


def percentile(values: list[float], part: float) -> float:
    """Return the value below which that part of the values lies; 0 of none."""
    if len(values) < 2:
        return values[0] if values else 0.0
    return statistics.quantiles(values, n=1000, method="inclusive")[min(998, round(part * 1000) - 1)]


def show(result: dict[str, Any]) -> None:
    """Print the result, and the machine-readable form as the last line."""
    lines = [
        f"{result['clients']} websocket clients, {result['sent_per_s']} prompts/s for {result['seconds']} s"
        f" ({result['graph']} pictures): {result['errors']} errors, {result['clients_cut_off']} clients lost",
        f"POST /prompt: half within {result['p50_ms']} ms, 99% within {result['p99_ms']} ms, all within"
        f" {result['most_ms']} ms (the sender itself was late by up to {result['sender_late_p99_ms']} ms)",
        f"done {result['prompts_per_s']} prompts/s, {result['queue_at_the_end']} waited when all were sent, all"
        f" done after {result['all_done_after_s']} s",
        f"processor time of one prompt: server {result['server_cpu_ms_per_prompt']} ms, worker"
        f" {result['workers_cpu_ms_per_prompt']} ms, this program {result['bench_cpu_ms_per_prompt']} ms",
        f"server memory: {result['memory_start_mb']} MB, then {result['memory_end_mb']} MB",
        f"websocket messages: {result['ws_delivered']} delivered, {result['ws_lost']} starts and ends lost",
        json.dumps(result),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
