"""Start the real server as a process, and stop it so that leaks fail the test."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEST_ENV = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONUNBUFFERED": "1"}
#: ComfyUI's results were recorded with AVX2 kernels; wider ones round the last bits in another order.
RECORDED_KERNELS = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
SHM = "/dev/shm/"
MARK = "COMFYSERVERLESS_TEST_SERVER"
PATIENCE_S = 240.0
"""How long to wait for what comes in a moment on a quiet machine, and later on a busy or slow one."""

_TAKEN = "is taken by another program"
_PORTS_TRIED = 5


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How to start a server.

    base: its own empty folder (input, output, temp, user below it); models: the user's models folder or None;
    flags: more command line flags; env: variables on top of the test environment.
    """

    base: Path
    models: Path | None = None
    flags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def command(self, port: int) -> list[str]:
        """Return the command line that serves on `port`."""
        command = [
            sys.executable,
            "-m",
            "comfyserverless",
            "serve",
            "--listen",
            "127.0.0.1",
            "--port",
            str(port),
        ]
        command += ["--base-directory", str(self.base)]
        if self.models is not None:
            command += ["--models-directory", str(self.models)]
        return [*command, *self.flags]


class RunningServer:
    """One server process with its workers; use `start` and `stop`, or the fixtures."""

    def __init__(self, options: ServerOptions, port: int, process: subprocess.Popen[bytes], mark: str) -> None:
        self.options = options
        self.url = f"http://127.0.0.1:{port}"
        self.process = process
        self.mark = mark

    @classmethod
    def start(cls, options: ServerOptions, *, ready_within_s: float = PATIENCE_S) -> RunningServer:
        """Start a server and wait until it answers HTTP (workers may still be loading).

        Raises AssertionError with the log when it does not. A port that was free may be taken by another
        program before the server gets it; then another one is tried.
        """
        for _ in range(_PORTS_TRIED):
            server = cls._begin(options)
            try:
                server._wait_ready(ready_within_s)
            except BaseException:
                server.kill()
                if server.process.returncode == 2 and _TAKEN in server.log():
                    continue
                raise
            return server
        raise AssertionError(f"{_PORTS_TRIED} free ports were taken, one after the other")

    @classmethod
    def _begin(cls, options: ServerOptions) -> RunningServer:
        """Start a server on a port that is free now."""
        options.base.mkdir(parents=True, exist_ok=True)
        log = options.base / "server.log"
        port = free_port()
        mark = f"{MARK}={uuid.uuid4().hex}"
        with log.open("wb") as out:
            process = subprocess.Popen(
                options.command(port),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=os.environ | TEST_ENV | recorded_kernels() | dict(options.env) | dict([mark.split("=")]),
                start_new_session=True,
            )
        return cls(options, port, process, mark)

    def log(self) -> str:
        """Return everything that the server and its workers printed so far."""
        return (self.options.base / "server.log").read_text(errors="replace")

    def folder(self, name: str) -> Path:
        """Return one of its folders: `input`, `output`, `temp` or `user`."""
        return self.options.base / name

    def pids(self) -> list[int]:
        """List the live processes of its session: the server itself and everything that it started."""
        return live_pids(self.process.pid, self.mark)

    def stop(self, *, by: signal.Signals = signal.SIGTERM, within_s: float = PATIENCE_S) -> None:
        """Ask it to end and assert that it does in time, with no process and no shared memory left."""
        arenas = shared_memory_of(self.pids())
        self.process.send_signal(by)
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server did not end {within_s} s after {by.name}\n{self.log()}") from None
        left = self.settled_pids()
        self.kill()
        assert not left, f"processes left after the server ended: {left}\n{self.log()}"
        leaked = [path for path in arenas if os.path.exists(path)]
        leaked += [str(path) for path in Path(SHM).glob(f"comfyserverless-*-{self.process.pid}-*")]
        assert not leaked, f"shared memory left after the server ended: {leaked}\n{self.log()}"
        assert code == 0, f"the server ended with code {code}\n{self.log()}"

    def kill(self) -> None:
        """End every process of its session at once; for the end of failed tests."""
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(PATIENCE_S)

    def settled_pids(self, within_s: float = 60.0) -> list[int]:
        """Return what is left of its processes once the kernel had a moment to reap children."""
        deadline_s = time.monotonic() + within_s
        while (left := self.pids()) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        return left

    def _wait_ready(self, within_s: float) -> None:
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            assert self.process.poll() is None, f"the server ended at start\n{self.log()}"
            try:
                with urllib.request.urlopen(f"{self.url}/system_stats", timeout=30):
                    return
            except urllib.error.HTTPError:  # it answers: who asks without a token is refused
                return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.05)
        raise AssertionError(f"the server did not answer within {within_s} s\n{self.log()}")


def recorded_kernels() -> dict[str, str]:
    """Return the variables that choose the kernels of the recordings, none where the CPU lacks them."""
    cpu = Path("/proc/cpuinfo")
    has_avx2 = cpu.exists() and " avx2 " in cpu.read_text()
    return dict(RECORDED_KERNELS) if has_avx2 else {}


def free_port() -> int:
    """Return a TCP port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def live_pids(session: int, mark: str) -> list[int]:
    """List the live processes of a session, or with the inherited mark in their environment (Linux).

    The mark also finds processes that went to a session of their own.
    """
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _is_ours(entry, session, mark)
    ]


def _is_ours(entry: Path, session: int, mark: str) -> bool:
    """Tell whether a /proc entry is a live process of the session or with the mark."""
    try:
        stat = (entry / "stat").read_text()
        # The command may hold spaces and parentheses; after its last `)` come state, ppid, pgrp, session.
        state, _ppid, _pgrp, owner = stat[stat.rindex(")") + 2 :].split()[:4]
        if state == "Z":
            return False
        return int(owner) == session or mark.encode() in (entry / "environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


def shared_memory_of(pids: list[int]) -> set[str]:
    """List the files below /dev/shm that these processes have mapped or open."""
    found: set[str] = set()
    for pid in pids:
        try:
            maps = Path(f"/proc/{pid}/maps").read_text()
            links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        found.update(re.findall(rf"({SHM}\S+)$", maps, re.MULTILINE))
        found.update(link for link in links if link.startswith(SHM))
    return found


def group_ends(group: int) -> bool:
    """Tell whether every process of a group is gone in a while; the dead ones wait to be reaped."""
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False
