"""Start a server that can be killed, and look at it from outside: its answers, its memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from comfyserverless.bench.serving import BenchError, free_port
from comfyserverless.core.errors import ConfigError

_READY_WITHIN_S = 180.0
_END_WITHIN_S = 30.0
_MIB = 1 << 20


class ServerProcess:
    """One server on a base directory; its log is `server.log` there, which servers share."""

    def __init__(self, folder: Path, flags: Sequence[str]) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / "server.log"
        command = [sys.executable, "-m", "comfyserverless", "serve", "--port", str(self.port)]
        command += ["--base-directory", str(folder), *flags]
        with self._log.open("ab") as out:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def wait_answering(self) -> None:
        """Wait until it answers HTTP; workers may still be loading. Raises BenchError."""
        self._wait(lambda: self.get("/prompt") is not None, "answer")

    def wait_ready(self) -> None:
        """Wait until its workers are there. Raises BenchError."""
        self._wait(self._has_workers, "have its workers")

    def _has_workers(self) -> bool:
        workers = self.get("/comfyserverless/workers")["workers"]
        return bool(workers) and all(worker["state"] in ("ready", "busy") for worker in workers)

    def _wait(self, is_there: Any, what: str) -> None:
        deadline_s = time.monotonic() + _READY_WITHIN_S
        while time.monotonic() < deadline_s and self.process.poll() is None:
            try:
                if is_there():
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                pass
            time.sleep(0.05)
        raise BenchError(f"the server did not {what}:\n{self.log_end()}")

    def get(self, path: str) -> Any:
        """Return the JSON answer to a request."""
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.load(answer)

    def log_end(self) -> str:
        """Return the last lines of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])

    def memory_mb(self) -> float:
        """Return what the server process itself has in memory, without its workers, in MiB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / _MIB

    def cpu_s(self) -> tuple[float, float]:
        """Return the processor seconds that the server process has taken, and its workers."""
        ticks = {pid: _ticks_of(pid, session=self.process.pid) for pid in _pids()}
        own = ticks.pop(self.process.pid, 0)
        per_s = os.sysconf("SC_CLK_TCK")
        return own / per_s, sum(ticks.values()) / per_s

    def kill(self) -> None:
        """End it as a crash does; its workers end by themselves."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it in good order."""
        self.process.terminate()
        try:
            self.process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _ticks_of(pid: int, session: int) -> int:
    """Return the processor ticks of a process if it is of a session, else 0."""
    try:
        # After the command, which may hold anything, come state, parent, group, session, ...
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0
    return int(fields[11]) + int(fields[12]) if int(fields[3]) == session else 0


@contextmanager
def server(folder: Path, flags: Sequence[str]) -> Iterator[ServerProcess]:
    """Start a server and wait until its workers are there; stops it after. Raises BenchError."""
    started = ServerProcess(folder, flags)
    try:
        started.wait_ready()
        yield started
    finally:
        started.stop()


def allow_connections(count: int) -> None:
    """Raise this process's limit of open files, which its server inherits. Raises ConfigError if it cannot."""
    needed = 2 * count + 512
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            f"{count} clients need {needed} open files, and this user may have {hard}: raise the limit"
            f" (`ulimit -Hn {needed}` as root), or ask for fewer with --clients"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
