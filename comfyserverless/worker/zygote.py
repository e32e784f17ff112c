"""Fork workers from a process that has torch and the model code imported already.

Importing takes ten seconds, a fork some milliseconds. Laws of this process: one thread, no torch operation, no
CUDA (a forked CUDA context is unusable), stdout for reports only. It ends, and its workers with it, when
its stdin ends, when it is told to stop, or when its parent dies. The messages are in `core.zygote`.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import msgspec

from comfyserverless import log_lines
from comfyserverless.core.zygote import (
    Exited,
    FromZygote,
    Ready,
    Spawned,
    SpawnWorker,
    StopZygote,
    ZygoteOptions,
    decode_request,
    encode_line,
)
from comfyserverless.worker.environment import die_with_parent

log = logging.getLogger(__name__)

_WARM_MODULES = (
    "comfyserverless.functions.registry",
    "comfyserverless.models.pool",
    "comfyserverless.models.warm",
    "comfyserverless.worker.process",
)
_STDIN, _STDOUT, _STDERR = 0, 1, 2
_TERM_GRACE_S = 2.0
_CRASHED = 70


@dataclass(frozen=True, slots=True)
class _Child:
    """One forked worker; pidfd becomes readable when it is over."""

    request: SpawnWorker
    pid: int
    pidfd: int


Work = Callable[[ZygoteOptions, SpawnWorker], int]
"""What a fork does with its request; returns its exit code."""


def run_zygote(options: ZygoteOptions, work: Work | None = None) -> int:
    """Import, report `Ready`, then serve requests until the end. Returns the exit code.

    work: None for being a worker.
    """
    log_lines.set_up(options.log_level, options.log_format)
    parent_pid = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the control process, which ends us in order
    signal.signal(signal.SIGHUP, lambda *_: os._exit(0) if os.getppid() != parent_pid else None)
    die_with_parent(parent_pid, signal.SIGHUP)
    start_s = time.monotonic()
    for name in _WARM_MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()  # keeps the collector of a child from writing to pages that it shares with us
    zygote = Zygote(options, work or be_worker)
    zygote.watch_signals(parent_pid)
    try:
        zygote.report(Ready(os.getpid(), time.monotonic() - start_s))
        zygote.serve()
    finally:
        zygote.stop()
    return 0


class Zygote:
    """Serve the lines of stdin: fork, reap, report.

    work: what a child does with its request; it returns the child's exit code.
    """

    def __init__(self, options: ZygoteOptions, work: Work) -> None:
        self._options = options
        self._work = work
        self._selector = selectors.DefaultSelector()
        #: all and only workers that were forked and not yet reaped
        self._children: dict[int, _Child] = {}
        self._buffer = b""
        self._is_stopping = False

    def watch_signals(self, parent_pid: int) -> None:
        """Stop at SIGTERM, and at the SIGHUP that tells of the parent's end.

        Handlers only take notes: they may come several times, and in the middle of a stop. (The kernel sends
        SIGHUP for each thread of a dying parent, and also when merely the thread that started us ends.)
        """
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._selector.register(reader, selectors.EVENT_READ, self._on_wakeup)
        signal.signal(signal.SIGTERM, lambda *_: self._note_stop())
        signal.signal(signal.SIGHUP, lambda *_: self._note_stop() if os.getppid() != parent_pid else None)

    def serve(self) -> None:
        """Handle requests and ends of workers until stdin ends or a stop is asked for."""
        self._selector.register(_STDIN, selectors.EVENT_READ, self._read_requests)
        while not self._is_stopping:
            self._handle_events(None)

    def stop(self) -> None:
        """End all workers: SIGTERM, some time, SIGKILL; report and reap each."""
        if _STDIN in self._selector.get_map():
            self._selector.unregister(_STDIN)
        self._signal_all(signal.SIGTERM)
        deadline_s = time.monotonic() + _TERM_GRACE_S
        while self._children:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                self._signal_all(signal.SIGKILL)
            self._handle_events(max(left_s, 0.05))

    def report(self, message: FromZygote) -> None:
        """Write one line; the end of the reader is the end of our parent, which stdin tells as well."""
        try:
            os.write(_STDOUT, encode_line(message))
        except BrokenPipeError:
            self._is_stopping = True

    def _handle_events(self, timeout_s: float | None) -> None:
        for key, _ in self._selector.select(timeout_s):
            key.data(key.fd)

    def _note_stop(self) -> None:
        self._is_stopping = True

    def _on_wakeup(self, pipe: int) -> None:
        os.read(pipe, 1 << 12)

    def _read_requests(self, stdin: int) -> None:
        data = os.read(stdin, 1 << 16)
        if not data:
            self._is_stopping = True
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._handle(line)

    def _handle(self, line: bytes) -> None:
        try:
            request = decode_request(line)
        except msgspec.DecodeError as exc:
            log.error("line is no request: %s", exc)
            return
        if isinstance(request, StopZygote):
            self._is_stopping = True
        else:
            self._spawn(request)

    def _spawn(self, request: SpawnWorker) -> None:
        parent_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._run_child(request, parent_pid)
        child = _Child(request, pid, os.pidfd_open(pid))
        self._children[pid] = child
        self._selector.register(child.pidfd, selectors.EVENT_READ, lambda _: self._reap(child))
        self.report(Spawned(request.worker, pid))

    def _run_child(self, request: SpawnWorker, parent_pid: int) -> NoReturn:
        """Turn a fresh fork into a worker. Never returns, so that the zygote's own code cannot run twice."""
        status = _CRASHED
        try:
            die_with_parent(parent_pid, signal.SIGKILL)
            if request.host is not None:
                # What packs start ends with it, and their signals to the group reach nobody else.
                os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            self._selector.close()
            for child in self._children.values():
                os.close(child.pidfd)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, _STDIN)
            os.close(null)
            os.dup2(_STDERR, _STDOUT)
            always = {"worker": request.worker}
            log_lines.set_up(self._options.log_level, self._options.log_format, always=always)
            status = self._work(self._options, request)
        except BaseException:
            log.critical("worker %s ends by a fault of its own", request.worker, exc_info=True)
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _reap(self, child: _Child) -> None:
        if child.request.host is not None:
            # Before it is reaped: nobody else can have its number.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        _, wait_status = os.waitpid(child.pid, 0)
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        del self._children[child.pid]
        for path in (child.request.arena_path, child.request.arena_fallback_path):
            if path:
                Path(path).unlink(missing_ok=True)
        self.report(Exited(child.request.worker, child.pid, os.waitstatus_to_exitcode(wait_status)))

    def _signal_all(self, number: signal.Signals) -> None:
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError):  # dead already, not reaped yet
                signal.pidfd_send_signal(child.pidfd, number)


def be_worker(options: ZygoteOptions, request: SpawnWorker) -> int:
    """Run a worker in this process until the end; return the exit code."""
    from comfyserverless.worker.process import run_worker

    return run_worker(options, request)
