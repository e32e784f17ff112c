"""Start a real zygote, as the control process does, for tests of worker processes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from comfyserverless.core.ids import WorkerId
from comfyserverless.core.zygote import (
    Exited,
    FromZygote,
    Ready,
    Spawned,
    SpawnWorker,
    ToZygote,
    ZygoteOptions,
    decode_report,
    encode_line,
)

Report = TypeVar("Report", Ready, Spawned, Exited)

_TIMEOUT_S = 240.0


class RunningZygote:
    """A zygote and its lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.ready: Ready

    def write(self, message: ToZygote) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(encode_line(message))

    async def expect(self, kind: type[Report]) -> Report:
        """Return the next report, which must be of this kind."""
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), _TIMEOUT_S)
        report: FromZygote = decode_report(line)
        assert isinstance(report, kind), report
        return report

    async def spawn(self, worker: str, link: str, arena_path: Path, arena_bytes: int = 64 << 20) -> Spawned:
        """Ask for a worker and return its process."""
        self.write(SpawnWorker(WorkerId(worker), f"token-{worker}", link, str(arena_path), arena_bytes))
        return await self.expect(Spawned)

    async def wait(self) -> int:
        return await asyncio.wait_for(self.process.wait(), _TIMEOUT_S)


@asynccontextmanager
async def run_zygote(threads: int = 1) -> AsyncIterator[RunningZygote]:
    """Run a zygote for the duration of the block; it must end when its stdin is closed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "comfyserverless.worker",
        msgspec.json.encode(ZygoteOptions(threads=threads)).decode(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    zygote = RunningZygote(process)
    try:
        zygote.ready = await zygote.expect(Ready)
        yield zygote
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await zygote.wait()
        except TimeoutError:
            process.kill()
            raise


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def wait_until_gone(*pids: int, timeout_s: float = _TIMEOUT_S) -> None:
    """Wait until none of these processes runs any more."""
    async with asyncio.timeout(timeout_s):
        while any(is_running(pid) for pid in pids):  # noqa: ASYNC110 - the kernel has no event for a grandchild
            await asyncio.sleep(0.02)


def shared_memory_path(name: str) -> Path:
    """Return a path in /dev/shm that no other test uses."""
    return Path("/dev/shm") / f"comfyserverless-test-{os.getpid()}-{name}"
