"""Join the real parts of both towers in one process: the dispatcher, and workers' lanes, stores and arenas.

Only the links are replaced (by calls), and processes (a worker that is killed is cut off, and loses the lock
that tells its peers that it lives).
"""

from __future__ import annotations

import asyncio
import fcntl
import time
from collections.abc import Mapping
from pathlib import Path

from comfyserverless.control.dispatch import Call, Dispatcher
from comfyserverless.control.workers.checkpoints import CheckpointFiles, Recovery
from comfyserverless.core import messages as wire
from comfyserverless.core.ids import WorkerId
from comfyserverless.core.memory import DeviceMemory, HostMemory, MemoryCounters, WeightsPicture
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.scheduling.config import SchedulingConfig
from comfyserverless.sdk.modelfn import ModelFn
from comfyserverless.worker.execution import Execution
from comfyserverless.worker.lanes import Lanes

_ARENA_BYTES = 1 << 20


class NoWeights:
    """A pool without models."""

    def picture(self) -> WeightsPicture:
        """There is nothing to see."""
        return WeightsPicture(DeviceMemory(), HostMemory(), MemoryCounters())

    def unload_all(self) -> None:
        """There is nothing to unload."""

    def take_waited_s(self) -> float:
        """Nobody waits."""
        return 0.0


class Site:
    """One worker of a cluster."""

    def __init__(self, cluster: Cluster, worker: WorkerId) -> None:
        self.worker = worker
        self.is_lost = False
        self.arena = SharedMemoryArena(str(cluster.folder / worker), _ARENA_BYTES)
        self.store = TensorStore(worker, self.arena)
        self._cluster = cluster
        self._execution = Execution(cluster.functions, self.store, NoWeights(), self._say)
        self._lanes = Lanes({"gpu": 1, "cpu": 1}, self._execution.run, self._say, lambda _: None)

    def hear(self, message: wire.ToWorker) -> None:
        """Carry a message out, as a worker's session does."""
        match message:
            case wire.RunInvocation():
                self._lanes.submit(message)
            case wire.CancelInvocation(invocation=invocation):
                self._lanes.cancel(invocation)
            case wire.FreeTensors(tensors=tensors):
                self._execution.free(tensors)

    def lose(self) -> None:
        """Cut it off, as when its process is killed; peers learn it from the kernel."""
        self.is_lost = True
        fcntl.flock(self.arena._fd, fcntl.LOCK_UN)
        for invocation in self._lanes.open_invocations():
            self._lanes.cancel(invocation)

    def close(self) -> None:
        """Wait for its threads, and give up its memory."""
        self._lanes.stop()
        self.store.close()

    def _say(self, message: wire.FromWorker) -> None:
        self._cluster.loop.call_soon_threadsafe(self._cluster.receive, self, message)


class Cluster:
    """A dispatcher and its workers. functions: by name."""

    def __init__(self, folder: Path, functions: Mapping[str, ModelFn], *, overlaps: bool = True) -> None:
        self.folder = folder
        self.functions = functions
        self.loop = asyncio.get_running_loop()
        self.sites: dict[WorkerId, Site] = {}
        self._all: list[Site] = []
        recovery = Recovery(CheckpointFiles(folder, 0))
        config = SchedulingConfig(slack_s=1.0, max_attempts=100, overlap_callbacks=overlaps)
        self.dispatcher = Dispatcher(config, self._send, time.monotonic, lambda _: False, recovery)

    def join(self) -> None:
        """Add a worker."""
        site = Site(self, WorkerId(f"w{len(self._all)}.0"))
        for peer in self.sites.values():
            site.store.add_peer(peer.worker, peer.arena.path)
            peer.store.add_peer(site.worker, site.arena.path)
        self.sites[site.worker] = site
        self._all.append(site)
        self.dispatcher.worker_joined(site.worker, {"gpu": 1, "cpu": 1})

    def lose(self, worker: WorkerId) -> None:
        """Kill a worker; the control process notices it a little later than its peers can."""
        site = self.sites.pop(worker)
        site.lose()
        self.loop.call_later(0.005, self._notice, site)

    def submit(self, call: Call) -> None:
        """Submit an invocation."""
        self.dispatcher.submit(call)

    def receive(self, site: Site, message: wire.FromWorker) -> None:
        """Take in what a worker says; the dead say nothing."""
        if site.is_lost:
            return
        match message:
            case wire.InvocationPublished():
                self.dispatcher.published(site.worker, message)
            case wire.InvocationDone():
                self.dispatcher.done(site.worker, message)
            case wire.InvocationFailed():
                self.dispatcher.failed(site.worker, message)
            case wire.InvocationCancelled():
                self.dispatcher.cancelled(site.worker, message)

    def store_of(self, worker: WorkerId) -> TensorStore:
        """Return a worker's store, also a dead one's, whose loss may not be noticed yet."""
        return next(site.store for site in self._all if site.worker == worker)

    def used_bytes(self) -> int:
        """Return what is taken in the arenas of the living."""
        return sum(site.store.used_bytes for site in self.sites.values())

    def runs_nothing(self) -> bool:
        """Tell whether all lanes are empty."""
        return not any(self.dispatcher.running_on(worker) for worker in self.sites)

    async def close(self) -> None:
        """End all threads, also those of the dead."""
        for site in self._all:
            await asyncio.to_thread(site.close)

    def _send(self, worker: WorkerId, message: wire.ToWorker) -> None:
        site = self.sites.get(worker)
        if site is not None:
            site.hear(message)

    def _notice(self, site: Site) -> None:
        for peer in self.sites.values():
            peer.store.note_peer_gone(site.worker)
        self.dispatcher.worker_lost(site.worker)
