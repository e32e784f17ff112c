"""Serve the link of the node host: say hello, load the packs beside, carry out messages."""

from __future__ import annotations

import logging
import os
import threading

import msgspec
import torch

from comfyserverless.core import messages as wire
from comfyserverless.core.hosting import Catalog, HostPlan, PackReport
from comfyserverless.core.memory import DeviceMemory, HostMemory, MemoryCounters, WeightsPicture
from comfyserverless.core.modelfn import HOST_FUNCTIONS, Lane
from comfyserverless.core.zygote import SpawnWorker
from comfyserverless.dataplane.arena import LocalArena
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.host import bridge
from comfyserverless.host.jsonsafe import json_safe
from comfyserverless.host.loading.leaving import watch_exits
from comfyserverless.host.loading.packs import WEB_FOLDERS, PackLoader
from comfyserverless.host.loading.registry import REGISTRY
from comfyserverless.host.parts import Parts, attach_all
from comfyserverless.host.running.executor import Executor
from comfyserverless.host.running.live import LiveBridge, places_of
from comfyserverless.host.running.questions import Questions
from comfyserverless.host.values import Codec, ObjectStore
from comfyserverless.worker import device as devices
from comfyserverless.worker.lanes import Lanes
from comfyserverless.worker.link import Link, LinkLost
from comfyserverless.worker.reporting import Reporter

log = logging.getLogger(__name__)

LANE_SLOTS: dict[Lane, int] = {"pack": 1, "async": 16}


class HostSession:
    """Carry out the messages of one link, and load the packs meanwhile."""

    def __init__(
        self, request: SpawnWorker, plan: HostPlan, arena: LocalArena, store: TensorStore, link: Link
    ) -> None:
        self._request = request
        self._plan = plan
        self._store = store
        self._arena = arena
        self._link = link
        self._device = torch.device("cpu")
        self._pid = os.getpid()
        self._objects = ObjectStore(request.worker)
        codec = Codec(store, self._objects)
        self._bridge = LiveBridge(self._send, codec, places_of({"base": plan.settings.base, **plan.places}))
        bridge.install(self._bridge)
        self._parts: Parts = attach_all(plan)
        self._loaded = threading.Event()
        executor = Executor(REGISTRY, codec, self._bridge, self._loaded)
        self._questions = Questions(REGISTRY, executor.instances, self._bridge, self._send, self._parts.answers)
        self._lanes = Lanes(LANE_SLOTS, executor.run, self._send, lambda _: None)
        self._reporter = Reporter(self._device, store, _no_weights, link)

    def serve(self) -> None:
        """Say hello and serve until Shutdown. Raises LinkLost if the control process goes away."""
        self._link.send(self._hello())
        self._reporter.start()
        threading.Thread(target=self._load, name="pack-loading", daemon=True).start()
        for message in self._link.receive():
            if isinstance(message, wire.Shutdown):
                break
            self._handle(message)
        for end in self._parts.ending:
            end()
        self._reporter.stop()

    def _hello(self) -> wire.Hello:
        arena = self._arena
        return wire.Hello(
            version=wire.LINK_VERSION,
            worker=self._request.worker,
            token=self._request.token,
            pid=os.getpid(),
            lanes=LANE_SLOTS,
            functions=tuple(HOST_FUNCTIONS.values()),
            device=devices.describe_device(self._device),
            torch_version=str(torch.__version__),
            arena_path=arena.path,
            arena_bytes=arena.size_bytes,
        )

    def _handle(self, message: wire.ToWorker) -> None:
        match message:
            case wire.RunInvocation():
                self._lanes.submit(message)
            case wire.CancelInvocation(invocation=invocation):
                self._lanes.cancel(invocation)
            case wire.FreeTensors(tensors=tensors):
                self._store.free(tensors)
                self._objects.free(tensors)
            case wire.PeerArena():
                self._on_peer_arena(message)
            case wire.HostQuestion():
                self._questions.ask(message)
            case wire.HostReply():
                self._bridge.reply(message)
            case _:
                log.debug("nothing to do for %s", type(message).__name__)

    def _on_peer_arena(self, message: wire.PeerArena) -> None:
        if not message.path:
            self._store.remove_peer(message.worker)
            return
        try:
            self._store.add_peer(message.worker, message.path)
        except OSError as exc:
            log.warning("arena of %s cannot be mapped: %s", message.worker, exc)

    def _load(self) -> None:
        """Load the packs and say what they bring; whatever happens, something is said."""
        packs: tuple[PackReport, ...] = ()
        watch_exits(self._plan.custom_nodes, self._leave)
        try:
            packs = PackLoader(self._plan, REGISTRY, self._begin).load_all()
        except BaseException:
            log.exception("loading node packs ended early")
        catalog = Catalog(packs, REGISTRY.describe_all(self._begin), web_folders=WEB_FOLDERS)
        for change in self._parts.loaded:
            try:
                catalog = change(catalog)
            except BaseException:
                log.exception("a part of the node host failed")
        self._loaded.set()
        self._bridge.notice("catalog", json_safe(msgspec.to_builtins(catalog)))

    def _begin(self, pack: str) -> None:
        self._bridge.notice("loading", {"pack": pack})

    def _leave(self, pack: str, where: str) -> None:
        log.error("node pack %s ends the process: %s", pack, where)
        self._bridge.notice("leaving", {"pack": pack, "where": where})

    def _send(self, message: wire.FromWorker) -> None:
        if os.getpid() != self._pid:
            _speak_in_fork(message)
            return
        try:
            self._link.send(message)
        except LinkLost:
            log.debug("a message was lost with the link; the receiving thread ends this process")


def _speak_in_fork(message: wire.FromWorker) -> None:
    """Be silent in a process that a pack has forked: only the host itself speaks on its link.

    A fork that comes back from the node's function ends here. Raises RuntimeError for what needs an answer.
    """
    match message:
        case wire.InvocationDone() | wire.InvocationFailed() | wire.InvocationCancelled():
            os._exit(0)
        case wire.HostRequest(kind=kind):
            raise RuntimeError(
                f"{kind}: only the process of the node packs can ask the server, not a fork of it"
            )


def _no_weights() -> WeightsPicture:
    return WeightsPicture(DeviceMemory(), HostMemory(), MemoryCounters())
