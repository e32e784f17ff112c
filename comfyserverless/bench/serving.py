"""Start a server as a process of its own, and end it: for whoever looks at the product from outside."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from comfyserverless.core.errors import ComfyServerlessError

_START_TIMEOUT_S = 120.0
_END_TIMEOUT_S = 20.0
_ENDED_BY_SIGTERM = 143


class BenchError(ComfyServerlessError):
    """Something that was started could not run; the message holds what it said."""


@contextmanager
def served(
    folder: Path, flags: Sequence[str], threads: int, workers: int = 1, token: str = ""
) -> Iterator[str]:
    """Serve from a base directory on a free port; yields the URL once its workers are ready, ends it after.

    flags: more flags of `serve`; threads: of torch, in each worker; token: of an operator, if the flags give it
    accounts. Its log is `server.log` in the folder. Raises BenchError.
    """
    port = free_port()
    command = [sys.executable, "-m", "comfyserverless", "serve", "--port", str(port)]
    command += ["--workers", str(workers), "--base-directory", str(folder), "--threads", str(threads), *flags]
    log = folder / "server.log"
    with log.open("w") as out, running(command, threads, out) as process:
        url = f"http://127.0.0.1:{port}"
        look = urllib.request.Request(f"{url}/comfyserverless/workers", headers=_access(token))
        _wait_ready(look, process, log, workers)
        yield url


@contextmanager
def running(command: list[str], threads: int, out: IO[str] | int) -> Iterator[subprocess.Popen[str]]:
    """Run a command with so many torch threads and its output to `out`; ends it after."""
    env = os.environ | {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    error = None if out == subprocess.PIPE else subprocess.STDOUT
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=error, env=env, text=True)
    with process:
        try:
            yield process
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """End a process, and wait for it: its folder is removed next."""
    process.terminate()
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()


@contextmanager
def tidy_at_sigterm() -> Iterator[None]:
    """Leave by way of an exception when told to end, so that what was started ends too."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_ENDED_BY_SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _access(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _wait_ready(look: urllib.request.Request, process: subprocess.Popen[str], log: Path, workers: int) -> None:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            with urllib.request.urlopen(look, timeout=5) as answer:
                states = [worker["state"] for worker in json.load(answer)["workers"]]
                if states.count("ready") >= workers:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(0.1)
    raise BenchError(f"the server did not start:\n{log.read_text()}")


def free_port() -> int:
    """Return a TCP port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
