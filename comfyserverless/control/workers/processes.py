"""Keep the worker processes alive: one zygote that has torch imported, and one forked worker per slot.

A slot whose process ends gets a new incarnation (a new worker id) at once; one that keeps dying young
waits longer each time. Workers whose arenas are in GPU memory are an island: when one of them ends, the others
are ended too, and all start again together. Arena files are removed here when their worker is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Protocol

import msgspec

from comfyserverless.control.workers.scratch import Scratch, shared_folder
from comfyserverless.control.workers.sizing import (
    GPU_ARENA_BYTES,
    arena_share_bytes,
    check_weights_left,
    count_gpus,
    free_bytes,
    given_arena_bytes,
    host_memory_bytes,
)
from comfyserverless.control.workers.weights import plan_weights
from comfyserverless.core.config import WorkerConfig
from comfyserverless.core.hosting import HostPlan
from comfyserverless.core.ids import WorkerId
from comfyserverless.core.zygote import (
    Exited,
    FromZygote,
    IslandPlace,
    Ready,
    SpawnWorker,
    StopZygote,
    ToZygote,
    ZygoteOptions,
    decode_report,
    encode_line,
)

log = logging.getLogger(__name__)

_YOUNG_S = 20.0
_MAX_BACKOFF_S = 30.0
_MAX_HOST_BACKOFF_S = 4.0
"""A node of a pack may end its host again and again: whoever runs it does not make all others wait for long.
If that happens while no node runs, the wait is what the source of hosts says."""

_STOP_TIMEOUT_S = 8.0


@dataclass(slots=True)
class Slot:
    """One place for a worker; worker is its incarnation now (None before the first start)."""

    name: str
    device_index: int | None
    worker: WorkerId | None = None
    token: str = ""
    pid: int | None = None
    starts: int = 0
    started_at_s: float = 0.0
    young_deaths: int = 0
    #: where its arena may be: preferred place, spare place.
    arena_paths: tuple[Path, ...] = ()


class _Bond(Enum):
    """Whether the workers live and die together."""

    NONE = auto()
    OPEN = auto()  # they are to be an island, and have not said yet whether they are
    ISLAND = auto()


def plan_slots(config: WorkerConfig, gpus: int, cores: int) -> tuple[list[Slot], int]:
    """Return the slots and the torch threads of each: an equal share of the cores, less one in all."""
    count = config.workers or max(1, gpus)
    slots = [Slot(f"w{index}", index % gpus if gpus else None) for index in range(count)]
    threads = config.threads or max(1, (cores - 1) // count)
    return slots, threads


def check_sizes(config: WorkerConfig) -> None:
    """Raise ConfigError if this machine cannot have what was asked for; nothing is made."""
    slots, _ = plan_slots(config, count_gpus(), 1)
    arena_bytes = _arena_bytes(config, host_memory_bytes(), len(slots))
    if config.arena_kind == "nvshmem" and count_gpus():
        check_weights_left(config.device_bytes, arena_bytes)


class HostSource(Protocol):
    """Who knows what node hosts are started with, and hears how they do."""

    def plan(self) -> HostPlan:
        """Return what the next host is started with."""

    def ended(self) -> float:
        """Take note that a host's process is over; returns how many seconds to wait before the next one."""

    def not_started(self) -> None:
        """Take note that the zygote ended before it could start anything."""


class WorkerProcesses:
    """Start, watch and stop the zygote and its workers.

    exited: told the worker id whenever a worker's process is over (its link may have told so before). host:
    of node hosts, None for doing without one.
    """

    def __init__(
        self,
        config: WorkerConfig,
        link: str,
        scratch: Scratch,
        exited: Callable[[WorkerId], None],
        host: HostSource | None = None,
    ) -> None:
        self._source = host
        self.host = None if host is None else Slot("host", None)
        self._link = link
        self._scratch = scratch
        self._on_exited = exited
        self.slots, self._threads = plan_slots(config, count_gpus(), len(os.sched_getaffinity(0)))
        self._options = ZygoteOptions(
            threads=self._threads, log_level=config.log_level, log_format=config.log_format
        )
        memory_bytes = host_memory_bytes()
        has_gpus = any(slot.device_index is not None for slot in self.slots)
        self._weights = plan_weights(config, memory_bytes, len(self.slots), has_gpus)
        self._arena_bytes = _arena_bytes(config, memory_bytes, len(self.slots))
        self._bond = _Bond.OPEN if config.arena_kind == "nvshmem" and host is None else _Bond.NONE
        if config.arena_kind == "nvshmem" and host is not None:
            log.warning("node packs are there, whose process cannot reach GPU memory: using shared memory")
        self._island_starts = 0
        self._zygote: asyncio.subprocess.Process | None = None
        self._is_ready = False
        self._is_stopping = False
        self._main: asyncio.Task[None] | None = None
        self._respawns: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to start workers in the background."""
        self._main = asyncio.create_task(self._run(), name="worker-processes")

    async def stop(self) -> None:
        """End all processes and remove their arenas."""
        self._is_stopping = True
        for task in (*self._respawns, *([self._main] if self._main else [])):
            task.cancel()
        zygote = self._zygote
        if zygote is not None and zygote.returncode is None:
            with contextlib.suppress(ConnectionError, RuntimeError, ProcessLookupError):
                if self._is_ready:
                    self._write(StopZygote())
                else:  # it reads requests only after its imports; it has no workers yet
                    zygote.terminate()
            try:
                await asyncio.wait_for(zygote.wait(), _STOP_TIMEOUT_S)
            except TimeoutError:
                self._kill_all()
                await zygote.wait()
        for slot in self._all:
            _remove_arena(slot)

    @property
    def _all(self) -> list[Slot]:
        return self.slots if self.host is None else [*self.slots, self.host]

    def slot_of(self, worker: WorkerId) -> Slot | None:
        """Return the slot whose present incarnation is this worker, or node host."""
        return next((slot for slot in self._all if slot.worker == worker), None)

    def is_host(self, worker: WorkerId | None) -> bool:
        """Tell whether a worker is the node host."""
        return self.host is not None and worker is not None and self.host.worker == worker

    def note_arena(self, path: str) -> None:
        """Take note of where a worker that was just started has its arena."""
        if self._bond is _Bond.OPEN:
            self._bond = _Bond.ISLAND if path.startswith("nvshmem:") else _Bond.NONE

    def kill(self, worker: WorkerId) -> None:
        """End a worker that does not answer; it is restarted like any that dies."""
        slot = self.slot_of(worker)
        if slot is not None and slot.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(slot.pid, signal.SIGKILL)

    def kill_silent(self, heard_at_s: Mapping[WorkerId, float], since_s: float) -> None:
        """Kill workers that said nothing since a moment; one that never did counts from its start."""
        for slot in self._all:
            if slot.worker is None or slot.pid is None:
                continue
            last_s = heard_at_s.get(slot.worker, slot.started_at_s)
            if last_s < since_s:
                silent_s = time.monotonic() - last_s
                log.error(
                    "worker %s (pid %d) was silent for %.0f s; killing it", slot.worker, slot.pid, silent_s
                )
                self.kill(slot.worker)

    async def _run(self) -> None:
        """Run one zygote after the other until stopped."""
        failures = 0
        while not self._is_stopping:
            began_s = time.monotonic()
            try:
                await self._run_zygote()
            except OSError as exc:  # no memory or process left for it now: that may pass
                log.error("cannot start the worker zygote: %s", exc)
            if not self._is_ready and not self._is_stopping and self._source is not None:
                self._source.not_started()
            self._is_ready = False
            for slot in self._all:
                self._over(slot)
            failures = failures + 1 if time.monotonic() - began_s < _YOUNG_S else 1
            log.error("the worker zygote ended; starting it again")
            await asyncio.sleep(min(2.0**failures - 1, _MAX_BACKOFF_S))

    async def _run_zygote(self) -> None:
        self._zygote = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "comfyserverless.host",
            msgspec.json.encode(self._options).decode(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            process_group=0,  # Ctrl-C in a terminal is ours to handle, and ends the zygote in order
        )
        assert self._zygote.stdout is not None
        async for line in self._zygote.stdout:
            try:
                self._on_report(decode_report(line))
            except msgspec.DecodeError:
                log.warning("unexpected line from the zygote: %r", line[:200])
        await self._zygote.wait()

    def _on_report(self, report: FromZygote) -> None:
        if isinstance(report, Ready):
            self._is_ready = True
            log.info("worker imports took %.1f s", report.import_s)
            self._spawn_all()
            if self.host is not None:
                self._spawn(self.host)
            return
        slot = self.slot_of(report.worker)
        if slot is None:
            return
        if isinstance(report, Exited):
            self._on_exit(slot, report)
        else:
            slot.pid = report.pid

    def _on_exit(self, slot: Slot, report: Exited) -> None:
        if not self._is_stopping:
            log.warning(
                "worker %s (pid %d) ended with status %d",
                report.worker,
                report.pid,
                report.status,
                extra={"worker": report.worker},
            )
        self._over(slot)
        if self._bond is not _Bond.NONE and not self._is_stopping and slot is not self.host:
            self._end_island()
        self._respawn_later(slot)

    def _end_island(self) -> None:
        """End the workers that shared GPU memory with one that ended; one that never formed is given up."""
        if self._bond is _Bond.OPEN:
            log.error("workers cannot share GPU memory; starting them again with shared memory")
            self._bond = _Bond.NONE
        for slot in self.slots:
            if slot.worker is not None:
                self.kill(slot.worker)
        if self._bond is _Bond.ISLAND and all(slot.pid is None for slot in self.slots):
            self._bond = _Bond.OPEN

    def _over(self, slot: Slot) -> None:
        worker, slot.pid = slot.worker, None
        _remove_arena(slot)
        if worker is not None:
            self._on_exited(worker)

    def _spawn_all(self) -> None:
        self._island_starts += 1
        for slot in self.slots:
            self._spawn(slot)

    def _place_of(self, slot: Slot) -> IslandPlace | None:
        if self._bond is _Bond.NONE:
            return None
        name = f"{self._scratch.tag}-{self._island_starts}"
        return IslandPlace(name, self.slots.index(slot), len(self.slots))

    def _spawn(self, slot: Slot) -> None:
        slot.worker = WorkerId(f"{slot.name}.{slot.starts}")
        slot.token = secrets.token_hex(16)
        slot.starts += 1
        slot.started_at_s = time.monotonic()
        prefixes = (self._scratch.prefix, self._scratch.spare_prefix)
        slot.arena_paths = tuple(Path(f"{prefix}{slot.worker}.arena") for prefix in prefixes)
        self._write(
            SpawnWorker(
                worker=slot.worker,
                token=slot.token,
                link=self._link,
                arena_path=str(slot.arena_paths[0]),
                arena_fallback_path=str(slot.arena_paths[1]),
                arena_bytes=self._arena_bytes,
                threads=self._threads,
                weights_bytes=self._weights.device_bytes(slot.device_index is not None),
                host_bytes=self._weights.host_bytes(slot.device_index is not None),
                resident=self._weights.resident,
                profiles_path=self._weights.profiles_path,
                device_index=slot.device_index,
                island=None if slot is self.host else self._place_of(slot),
                host=self._source.plan() if slot is self.host and self._source is not None else None,
            )
        )

    def _respawn_later(self, slot: Slot) -> None:
        if self._is_stopping:
            return
        is_young = time.monotonic() - slot.started_at_s < _YOUNG_S
        slot.young_deaths = slot.young_deaths + 1 if is_young else 0
        most_s = _MAX_HOST_BACKOFF_S if slot is self.host else _MAX_BACKOFF_S
        delay_s = min(2.0 ** (slot.young_deaths - 2), most_s) if slot.young_deaths > 1 else 0.0
        if slot is self.host and self._source is not None:
            delay_s = max(delay_s, self._source.ended())
        task = asyncio.create_task(self._respawn(slot, delay_s, self._island_starts))
        self._respawns.add(task)
        task.add_done_callback(self._respawns.discard)

    async def _respawn(self, slot: Slot, delay_s: float, island_starts: int) -> None:
        await asyncio.sleep(delay_s)
        if not self._is_ready or self._is_stopping or slot.pid is not None:
            return
        if self._bond is _Bond.NONE:
            self._spawn(slot)
        elif island_starts == self._island_starts and all(each.pid is None for each in self.slots):
            self._spawn_all()

    def _write(self, message: ToZygote) -> None:
        assert self._zygote is not None
        assert self._zygote.stdin is not None
        self._zygote.stdin.write(encode_line(message))

    def _kill_all(self) -> None:
        for slot in self._all:
            if slot.worker is not None:
                self.kill(slot.worker)
        if self._zygote is not None:
            with contextlib.suppress(ProcessLookupError):
                self._zygote.kill()


def _arena_bytes(config: WorkerConfig, memory_bytes: int, workers: int) -> int:
    if config.arena_kind == "nvshmem" and count_gpus():
        return config.arena_bytes or GPU_ARENA_BYTES
    if config.arena_bytes:
        return given_arena_bytes(config.arena_bytes, memory_bytes, workers)
    return arena_share_bytes(memory_bytes, free_bytes(shared_folder()), workers)


def _remove_arena(slot: Slot) -> None:
    for path in slot.arena_paths:
        path.unlink(missing_ok=True)
    slot.arena_paths = ()
