"""Join processes, links and dispatcher into one pool of workers, and watch over it.

A worker is lost when its link ends or its process does, whichever is noticed first. One that is silent
for too long is killed, so that what it ran can run elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from comfyserverless.control.dispatch import Dispatcher
from comfyserverless.control.hosting.host import PackHost
from comfyserverless.control.views import WorkerView
from comfyserverless.control.workers.checkpoints import CheckpointFiles, Recovery
from comfyserverless.control.workers.describing import Joined, describe
from comfyserverless.control.workers.links import LinkServer
from comfyserverless.control.workers.processes import Slot, WorkerProcesses
from comfyserverless.control.workers.scratch import Scratch, shared_folder
from comfyserverless.control.workers.sizing import checkpoint_share_bytes, free_bytes, host_memory_bytes
from comfyserverless.core import messages as wire
from comfyserverless.core.config import WorkerConfig
from comfyserverless.core.errors import InvariantError
from comfyserverless.core.ids import InvocationId, WorkerId
from comfyserverless.core.modelfn import BUILTIN_FUNCTIONS, HOST_FUNCTIONS
from comfyserverless.scheduling.state import SchedulingConfig

log = logging.getLogger(__name__)

_SILENCE_LIMIT_S = 120.0
_CANCEL_GRACE_S = 20.0
"""How long a cancelled invocation may keep its lane: a step cannot be stopped, but a worker can be replaced."""

_HOST_CANCEL_GRACE_S = 60.0
"""The same for a node of a pack, which nothing can interrupt that does not look for it."""

_WATCH_EVERY_S = 5.0


class WorkerPool:
    """Own the workers of one server.

    let_go: drop results in a worker's arena that only wait to be used again; False if there are none. host:
    whom the node host's messages are for, None for doing without one.
    """

    def __init__(
        self,
        config: WorkerConfig,
        scheduling: SchedulingConfig,
        scratch: Scratch,
        let_go: Callable[[WorkerId], bool],
        host: PackHost | None = None,
    ) -> None:
        self._host = host
        self._socket = scratch.folder / "link.sock"
        self.policy = scheduling.policy
        self._links = LinkServer(self)
        budget_bytes = checkpoint_share_bytes(host_memory_bytes(), free_bytes(shared_folder()))
        recovery = Recovery(CheckpointFiles(scratch.folder, budget_bytes))
        self.dispatcher = Dispatcher(scheduling, self._links.send, time.monotonic, let_go, recovery)
        self._processes = WorkerProcesses(config, f"unix:{self._socket}", scratch, self.lost, host)
        self._let_go = let_go
        #: all and only workers with a live link.
        self._joined: dict[WorkerId, Joined] = {}
        self.has_joined = asyncio.Event()
        """Set when the first worker has joined."""
        self._watch: asyncio.Task[None] | None = None
        self._is_stopping = False
        if host is not None:
            host.connect(self._links.send, self._processes.kill, self._view_host)

    @property
    def slot_count(self) -> int:
        """Return how many workers there are meant to be."""
        return len(self._processes.slots)

    @property
    def has_workers(self) -> bool:
        """Tell whether some worker takes work now."""
        return any(not self._processes.is_host(worker) for worker in self._joined)

    async def start(self) -> None:
        """Listen for links and begin to start workers."""
        await self._links.start(self._socket)
        self._processes.start()
        self._watch = asyncio.create_task(self._watch_silence(), name="worker-watch")

    async def stop(self) -> None:
        """End all workers."""
        self._is_stopping = True
        if self._watch is not None:
            self._watch.cancel()
        self._links.broadcast(wire.Shutdown())
        await self._processes.stop()
        await self._links.stop()

    def unload_models(self) -> None:
        """Ask every worker to drop its cached weights."""
        self._links.broadcast(wire.UnloadModels())

    def views(self) -> list[WorkerView]:
        """Describe every slot."""
        return [self._view(slot) for slot in self._processes.slots]

    # -- LinkOwner --------------------------------------------------------------------------------

    def token_of(self, worker: WorkerId) -> str | None:
        """Return the token a worker was started with."""
        slot = self._processes.slot_of(worker)
        return slot.token if slot else None

    def joined(self, hello: wire.Hello) -> None:
        """Check that the worker runs what we lower to, and give it work."""
        specs = {spec.name: spec for spec in hello.functions}
        is_host = self._processes.is_host(hello.worker)
        wanted = HOST_FUNCTIONS if is_host else BUILTIN_FUNCTIONS
        wrong = [name for name, spec in wanted.items() if specs.get(name) != spec]
        if wrong:
            raise InvariantError(f"worker {hello.worker} declares other ports for {', '.join(wrong)}")
        self._joined[hello.worker] = Joined(hello, None, time.monotonic())
        self._processes.note_arena(hello.arena_path)
        extra = {"worker": hello.worker}
        log.info("worker %s is ready (pid %d, %s)", hello.worker, hello.pid, hello.device.name, extra=extra)
        self.dispatcher.worker_joined(hello.worker, hello.lanes)
        if is_host and self._host is not None:
            self._host.joined(hello.worker)
        else:
            self.has_joined.set()

    def received(self, worker: WorkerId, message: wire.FromWorker) -> None:
        """Route a worker's message; what comes after the loss of its process was noticed is ignored."""
        state = self._joined.get(worker)
        if state is None:
            return
        state.heard_at_s = time.monotonic()
        match message:
            case wire.WorkerStats():
                state.note(message)
            case wire.HostAnswer() | wire.HostRequest() | wire.HostNotice():
                if self._host is not None and self._processes.is_host(worker):
                    self._host.received(message)
            case wire.Hello() | wire.JoinIsland():
                raise InvariantError(f"worker {worker} said hello twice")
            case _:
                self._hear(worker, message)

    def _hear(self, worker: WorkerId, message: wire.FromInvocation) -> None:
        match message:
            case wire.InvocationPublished():
                self.dispatcher.published(worker, message)
            case wire.InvocationDone():
                self._done(worker, message)
            case wire.InvocationShown():
                self.dispatcher.pictures.arrived(message.invocation, message.image)
            case wire.InvocationFailed():
                self.dispatcher.failed(worker, message)
            case wire.InvocationCancelled():
                self.dispatcher.cancelled(worker, message)

    def _done(self, worker: WorkerId, message: wire.InvocationDone) -> None:
        self.dispatcher.done(worker, message)
        if self._host is not None and self._processes.is_host(worker):
            self._host.health.worked()

    def lost(self, worker: WorkerId) -> None:
        """Take back what a worker had, once."""
        if (known := self._joined.pop(worker, None)) is not None:
            level = logging.DEBUG if self._is_stopping else logging.WARNING
            log.log(level, "worker %s is lost", worker, extra={"worker": worker})
            self._processes.kill(worker)  # first: what it ran may run elsewhere at once
            if self._host is not None:
                self._host.lost(worker, is_busy=bool(self.dispatcher.running_on(worker)))
            self._let_go(worker)
            self.dispatcher.worker_lost(worker, time.monotonic() - known.heard_at_s)

    # ---------------------------------------------------------------------------------------------

    async def _watch_silence(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_EVERY_S)
            heard_at_s = {worker: state.heard_at_s for worker, state in self._joined.items()}
            self._processes.kill_silent(heard_at_s, time.monotonic() - _SILENCE_LIMIT_S)
            for worker, invocation in self.overdue(self.dispatcher.held_up).items():
                extra = {"worker": worker, "invocation": invocation}
                log.warning("worker %s does not end cancelled %s; killing it", worker, invocation, extra=extra)
                self._processes.kill(worker)

    def overdue(
        self, held_up: Callable[[float], Mapping[WorkerId, InvocationId]]
    ) -> dict[WorkerId, InvocationId]:
        """Return who goes on with something cancelled for longer than may be, and with what.

        held_up: tells who does so for longer than some seconds.
        """
        found = {
            worker: each
            for worker, each in held_up(_CANCEL_GRACE_S).items()
            if not self._processes.is_host(worker)
        }
        nodes = held_up(_HOST_CANCEL_GRACE_S).items()
        return found | {worker: each for worker, each in nodes if self._processes.is_host(worker)}

    def _view_host(self) -> WorkerView | None:
        host = self._processes.host
        return None if host is None else self._view(host)

    def _view(self, slot: Slot) -> WorkerView:
        joined = self._joined.get(slot.worker) if slot.worker else None
        running = self.dispatcher.running_on(slot.worker) if slot.worker else ()
        return describe(slot, joined, running)
