"""Start a server for one run, on a free port and with folders of its own, and stop it afterwards."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from comfyserverless.client.connection import ConnectionFailed
from comfyserverless.client.interrupts import held_back

_START_S = 120.0
_STOP_S = 30.0
_POLL_S = 0.1
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
_SHOWN_LINES = 15


@contextmanager
def local_server(flags: Sequence[str]) -> Iterator[str]:
    """Give the address of a fresh server, started with these flags of `serve`.

    It is stopped at the end, and its folders go. Raises ConnectionFailed, with its last lines, if it cannot
    start.
    """
    with tempfile.TemporaryDirectory(prefix="comfyserverless-run-", ignore_cleanup_errors=True) as folder:
        base = Path(folder)
        command = [sys.executable, "-m", "comfyserverless", "serve", "--listen", "127.0.0.1", "--port", "0"]
        log = base / "server.log"
        process = None
        try:
            with log.open("wb") as out, held_back():
                # Its own session: Ctrl-C first takes the prompt back, then the server is told to end.
                process = subprocess.Popen(
                    [*command, "--base-directory", folder, *flags],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            yield _address(process, log)
        finally:
            if process is not None:
                _stop(process)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the server says where it listens."""
    until_s = time.monotonic() + _START_S
    while time.monotonic() < until_s:
        text = log.read_text(errors="replace")
        found = _ADDRESS.search(text)
        if found is not None:
            return found[0]
        if process.poll() is not None:
            break
        time.sleep(_POLL_S)
    lines = log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:]
    raise ConnectionFailed("\n".join(["the server did not start:", *lines]))


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
