"""Serve one link: say hello, carry out messages, until told to stop or the link is lost."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from comfyserverless.core import messages as wire
from comfyserverless.core.errors import InvariantError
from comfyserverless.core.ids import InvocationId, WorkerId
from comfyserverless.core.modelfn import Lane
from comfyserverless.dataplane.arena import LocalArena
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.sdk.modelfn import ModelFn
from comfyserverless.worker import device as devices
from comfyserverless.worker.execution import Execution, WeightPool
from comfyserverless.worker.lanes import Lanes
from comfyserverless.worker.link import Link, LinkLost
from comfyserverless.worker.pictures import Pictures
from comfyserverless.worker.reporting import Reporter

log = logging.getLogger(__name__)

LANE_SLOTS: Mapping[Lane, int] = {"gpu": 1, "cpu": 1}


@dataclass(frozen=True, slots=True)
class Parts:
    """What a worker is made of."""

    worker: WorkerId
    token: str
    device: torch.device
    functions: Mapping[str, ModelFn]
    arena: LocalArena
    store: TensorStore
    pool: WeightPool


class Worker:
    """Carry out the messages of one link."""

    def __init__(self, parts: Parts, link: Link) -> None:
        self._parts = parts
        self._link = link
        self._retired = _RetiredPeers(parts.store)
        self._pictures = Pictures(self._answer)
        self._execution = execution = Execution(
            parts.functions, parts.store, parts.pool, self._answer, self._pictures.prepare
        )
        self._lanes = Lanes(LANE_SLOTS, execution.run, self._answer, self._ended)
        self._reporter = Reporter(parts.device, parts.store, parts.pool.picture, link)

    def serve(self) -> None:
        """Say hello and serve until Shutdown. Raises LinkLost if the control process goes away."""
        self._link.send(self._hello())
        self._reporter.start()
        for message in self._link.receive():
            if isinstance(message, wire.Shutdown):
                break
            self._handle(message)
        self._lanes.stop()
        self._pictures.stop()
        self._reporter.stop()

    def _hello(self) -> wire.Hello:
        parts = self._parts
        return wire.Hello(
            version=wire.LINK_VERSION,
            worker=parts.worker,
            token=parts.token,
            pid=os.getpid(),
            lanes=dict(LANE_SLOTS),
            functions=tuple(function.spec() for function in parts.functions.values()),
            device=devices.describe_device(parts.device),
            torch_version=str(torch.__version__),
            arena_path=parts.arena.path,
            arena_bytes=parts.arena.size_bytes,
        )

    def _handle(self, message: wire.ToWorker) -> None:
        match message:
            case wire.RunInvocation():
                self._lanes.submit(message)
            case wire.FreeTensors(tensors=tensors):
                self._execution.free(tensors)
            case wire.CancelInvocation(invocation=invocation):
                self._lanes.cancel(invocation)
            case wire.PeerArena():
                self._on_peer_arena(message)
            case wire.UnloadModels():
                self._lanes.call("gpu", self._execution.unload_models)
            case wire.IslandReady():
                raise InvariantError("an island was ready after Hello")
            case wire.Welcome(version=version):
                log.debug("worker %s joined, link version %d", self._parts.worker, version)

    def _on_peer_arena(self, message: wire.PeerArena) -> None:
        if not message.path:
            self._parts.store.note_peer_gone(message.worker)
            self._retired.add(message.worker, self._lanes.open_invocations)
            return
        try:
            self._parts.store.add_peer(message.worker, message.path)
        except OSError as exc:
            # The peer died after it was announced; that it is gone will be announced, too.
            log.warning("arena of %s cannot be mapped: %s", message.worker, exc)

    def _ended(self, invocation: InvocationId) -> None:
        self._retired.ended(invocation)
        self._pictures.start(invocation)

    def _answer(self, answer: wire.FromWorker) -> None:
        try:
            self._link.send(answer)
        except LinkLost:
            log.debug("an answer was lost with the link; the receiving thread ends this process")


class _RetiredPeers:
    """Unmap the arena of a peer that is gone once nothing that was submitted before can still read it."""

    def __init__(self, store: TensorStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        #: by peer: the invocations that may still read its arena; never empty
        self._waiting: dict[WorkerId, set[InvocationId]] = {}

    def add(self, worker: WorkerId, open_invocations: Callable[[], list[InvocationId]]) -> None:
        # Asked under the lock: an invocation that is still open then reports its end only after this.
        with self._lock:
            readers = set(open_invocations())
            if readers:
                self._waiting[worker] = readers
        if not readers:
            self._store.remove_peer(worker)

    def ended(self, invocation: InvocationId) -> None:
        with self._lock:
            for readers in self._waiting.values():
                readers.discard(invocation)
            unused = [worker for worker, readers in self._waiting.items() if not readers]
            for worker in unused:
                del self._waiting[worker]
        for worker in unused:
            self._store.remove_peer(worker)
