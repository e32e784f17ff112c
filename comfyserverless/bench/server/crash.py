"""Kill a server at random moments under load, again and again: nothing accepted may be lost or saved twice.

It is killed while its workers start, while it accepts and runs, and while what was sent ends and goes to
history. The last server works off what is left; then every prompt that was answered with 200 must be in
history, and every one of its files must be there once.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comfyserverless.bench.server.clients import Requests
from comfyserverless.bench.server.process import ServerProcess
from comfyserverless.bench.serving import BenchError

_BATCH = 2
_SENDERS = 3
_PAUSE_S = 0.03
_LEAST_ACCEPTED = 4
"""As many new prompts a server has accepted before it is killed."""

_LOAD_S = (0.05, 1.5)
_ENDING_S = (0.0, 0.8)
_MOMENTS = ("starting", "running", "ending")
_WEIGHTS = (1, 3, 2)
_ALSO_PART = 0.6
_DONE_WITHIN_S = 600.0
_FILES = "output"


@dataclass(frozen=True, slots=True)
class CrashOptions:
    """What to do. kills: of the server; seed: of the moments; database: `--database` of the servers."""

    kills: int = 30
    seed: int = 0
    database: str = ""


class _Load:
    """Send prompts for as long as a server takes them; knows which ones were answered with 200."""

    def __init__(self) -> None:
        self.accepted: list[str] = []
        self.sent: set[str] = set()
        self.refused: Counter[int] = Counter()

    async def send(self, port: int) -> None:
        requests = Requests(port)
        try:
            while True:
                prompt_id = str(uuid.uuid4())
                self.sent.add(prompt_id)
                body = {"prompt": _graph(prompt_id, len(self.sent)), "prompt_id": prompt_id}
                status, _ = await requests.send("POST", "/prompt", json.dumps(body).encode())
                if status == 200:
                    self.accepted.append(prompt_id)
                else:
                    self.refused[status] += 1
                await asyncio.sleep(_PAUSE_S)
        except (OSError, EOFError, asyncio.CancelledError):
            return  # the server was killed, or enough was sent
        finally:
            requests.close()


def _graph(prompt_id: str, color: int) -> dict[str, Any]:
    size = {"width": 32, "height": 32, "batch_size": _BATCH, "color": color}
    return {
        "1": {"class_type": "EmptyImage", "inputs": size},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": prompt_id}},
    }


def measure(options: CrashOptions, also: Callable[[], None] | None = None) -> dict[str, Any]:
    """Kill and check; returns the result. Raises BenchError.

    also: called in some rounds about when the server is killed, in a thread: it kills the database, say.
    """
    with tempfile.TemporaryDirectory(prefix="comfyserverless-bench-") as name:
        return asyncio.run(_Crashes(Path(name), options, also).run())


class _Crashes:
    def __init__(self, folder: Path, options: CrashOptions, also: Callable[[], None] | None) -> None:
        self._folder = folder
        self._options = options
        self._also = also
        self._random = random.Random(options.seed)
        self._load = _Load()
        self._moments: Counter[str] = Counter()

    def _start(self) -> ServerProcess:
        flags = ["--workers", "1", "--threads", "1"]
        if self._options.database:
            flags += ["--database", self._options.database]
        return ServerProcess(self._folder, flags)

    async def run(self) -> dict[str, Any]:
        """Kill servers, let the last one work off what is left, and look for what is lost or there twice."""
        began_s = time.monotonic()
        for _ in range(self._options.kills):
            started = self._start()
            try:
                await self._disturb(started)
            finally:
                started.kill()
        last = self._start()
        try:
            last.wait_ready()
            history = await _settled_history(last)
        finally:
            last.stop()
        return self._checked(history) | {"seconds": round(time.monotonic() - began_s, 1)}

    async def _disturb(self, server: ServerProcess) -> None:
        """Load a server until the moment at which it is to be killed."""
        (moment,) = self._random.choices(_MOMENTS, _WEIGHTS)
        self._moments[moment] += 1
        server.wait_answering()
        if moment != "starting":
            server.wait_ready()
        accepted = len(self._load.accepted)
        senders = [asyncio.create_task(self._load.send(server.port)) for _ in range(_SENDERS)]
        others: list[asyncio.Task[None]] = []
        if self._also is not None and self._random.random() < _ALSO_PART:
            self._moments["database"] += 1
            await asyncio.sleep(self._random.uniform(*_LOAD_S))
            others = [asyncio.create_task(asyncio.to_thread(self._also))]
        await asyncio.sleep(self._random.uniform(*_LOAD_S))
        await self._until_accepted(accepted + _LEAST_ACCEPTED, senders)
        if moment == "ending":
            for sender in senders:
                sender.cancel()
            await asyncio.sleep(self._random.uniform(*_ENDING_S))
        server.kill()
        await asyncio.gather(*senders, return_exceptions=True)
        await asyncio.gather(*others)

    async def _until_accepted(self, count: int, senders: list[asyncio.Task[None]]) -> None:
        """Wait until so many prompts were accepted in all: a slow machine takes longer to have some to lose."""
        while len(self._load.accepted) < count and not all(each.done() for each in senders):  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE_S)

    def _checked(self, history: Mapping[str, Any]) -> dict[str, Any]:
        accepted = self._load.accepted
        on_disk = Counter(path.name.partition("_")[0] for path in (self._folder / _FILES).iterdir())
        shown = [
            image["filename"]
            for entry in history.values()
            for output in entry["outputs"].values()
            for image in output["images"]
        ]
        whole = [each for each, entry in history.items() if entry["status"]["completed"]]
        given_up = sum("ServerLostError" in str(entry["status"]["messages"]) for entry in history.values())
        return {
            "bench": "crash",
            "kills": self._options.kills,
            "moments": dict(self._moments),
            "accepted": len(accepted),
            "refused": self._load.refused.total(),
            "lost": sum(each not in history for each in accepted),
            "duplicated_outputs": sum(max(0, count - _BATCH) for count in on_disk.values())
            + len(shown)
            - len(set(shown)),
            "missing_outputs": sum(max(0, _BATCH - on_disk[each]) for each in whole)
            + sum(not (self._folder / _FILES / name).exists() for name in shown),
            "foreign_outputs": sum(count for each, count in on_disk.items() if each not in history),
            "failed": len(history) - len(whole) - given_up,
            "given_up": given_up,
            "integrity": self._integrity(),
            "seed": self._options.seed,
        }

    def _integrity(self) -> str:
        """Return what SQLite says of its file; a database elsewhere looks after itself, and was read."""
        if self._options.database:
            return "ok"
        path = self._folder / "user/records.sqlite3"
        moved_aside = list(path.parent.glob(f"{path.name}.damaged-*"))
        with closing(sqlite3.connect(path)) as database:
            found = database.execute("PRAGMA integrity_check").fetchone()[0]
            left = database.execute("SELECT COUNT(*) FROM saves").fetchone()[0]
        return "moved aside" if moved_aside else f"{left} saves left" if left else str(found)


async def _settled_history(server: ServerProcess) -> dict[str, Any]:
    """Return history once nothing waits or runs any more. Raises BenchError."""
    deadline_s = time.monotonic() + _DONE_WITHIN_S
    while server.get("/prompt")["exec_info"]["queue_remaining"]:
        if time.monotonic() > deadline_s:
            raise BenchError(f"prompts are left after {_DONE_WITHIN_S:g} s:\n{server.log_end()}")
        await asyncio.sleep(0.2)
    history: dict[str, Any] = server.get("/history")
    return history


def is_clean(result: Mapping[str, Any]) -> bool:
    """Tell whether nothing was lost, doubled or damaged."""
    counts = ("lost", "duplicated_outputs", "missing_outputs", "foreign_outputs", "failed")
    return not any(result[name] for name in counts) and result["integrity"] == "ok"


def show(result: Mapping[str, Any]) -> None:
    """Print the result, and the machine-readable form as the last line."""
    moments = ", ".join(f"{count} {name}" for name, count in result["moments"].items())
    lines = [
        f"{result['kills']} kills of the server ({moments}), {result['accepted']} prompts accepted:"
        f" {result['lost']} lost, {result['duplicated_outputs']} files too many,"
        f" {result['missing_outputs']} missing, {result['foreign_outputs']} of prompts that nobody knows",
        f"{result['given_up']} prompts were running at two kills and given up, {result['failed']} others"
        f" failed; records: {result['integrity']}; {result['seconds']} s",
        json.dumps(result),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
