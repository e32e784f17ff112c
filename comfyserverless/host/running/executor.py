"""Run one invocation of `pack.call` or `pack.call_async`: values in, the method for each mapped call, answers
out.

Sync nodes run on the one thread of their lane; those whose methods are coroutines run as tasks of one event
loop on another thread. Both threads are in inference mode, as in ComfyUI.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from comfyserverless.core import values as trees
from comfyserverless.core.errors import PromptError
from comfyserverless.core.ids import InvocationId
from comfyserverless.core.messages import (
    FromWorker,
    InvocationCancelled,
    InvocationDone,
    InvocationFailed,
    RunInvocation,
    Timing,
)
from comfyserverless.host.bridge import CallInfo, InterruptProcessingException
from comfyserverless.host.contract import ClassEntry, Contract, HiddenValues, contract_of
from comfyserverless.host.failing import kind_of, words_of
from comfyserverless.host.loading.registry import ClassRegistry
from comfyserverless.host.running.answers import Saving, answer_of, needed_names
from comfyserverless.host.running.current import Call, Running, executing
from comfyserverless.host.running.instances import Instances
from comfyserverless.host.running.live import LiveBridge, places_of
from comfyserverless.host.running.prompts import PromptShare, SharedPrompt, hidden_values
from comfyserverless.host.values import Codec
from comfyserverless.worker.failures import format_frames
from comfyserverless.worker.lanes import Ticket

log = logging.getLogger(__name__)

_INTERRUPTED = "comfy.model_management.InterruptProcessingException"
_LOOK_EVERY_S = 0.2
LAZY_CHECK = "check_lazy_status"


@dataclass(frozen=True, slots=True)
class _Job:
    """One invocation, read. calls: arguments as they came, one dict for each mapped call."""

    entry: ClassEntry
    contract: Contract
    method: str
    calls: list[dict[str, Any]]
    hidden: HiddenValues
    running: Running
    shared: SharedPrompt


class Executor:
    """Run invocations; `run` is called on the threads of lanes.

    loaded: set when the packs are: calls wait for it, as a host that follows one that ended gets work at once.
    """

    def __init__(
        self, registry: ClassRegistry, codec: Codec, bridge: LiveBridge, loaded: threading.Event
    ) -> None:
        self._loaded = loaded
        self._registry = registry
        self._codec = codec
        self._bridge = bridge
        self.instances = Instances()
        self._prompts = PromptShare()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._serve_loop, name="pack-tasks", daemon=True).start()

    def run(self, run: RunInvocation, ticket: Ticket) -> FromWorker:
        """Run one invocation and return the answer."""
        begin_s = time.perf_counter()
        _own_loop()
        running: Running | None = None
        saving = Saving(self._codec, self._bridge.with_room)
        fetched_s = 0.0
        loading_s = self._wait_for_packs(ticket)

        def timing() -> Timing:
            waited_s = loading_s + (running.waited_s if running else 0.0)
            compute_s = time.perf_counter() - begin_s - fetched_s - waited_s
            return Timing(0.0, max(0.0, compute_s), fetched_s, waited_s)

        try:
            with torch.inference_mode():
                job = self._read(run, ticket)
                running = job.running
                fetched_s = time.perf_counter() - begin_s - loading_s - running.waited_s
                answers = self._answers(job, run.lane == "async", saving)
            if "EXTRA_PNGINFO" in job.hidden.tags.values():
                self._tell_changes(job)
            outputs = trees.encode({"answers": answers})
            if not ticket.commit():
                saving.undo()
                return InvocationCancelled(run.invocation, timing())
            return InvocationDone(run.invocation, outputs, timing())
        except BaseException as exc:  # noqa: BLE001 - custom-node call: every failure becomes an answer
            saving.undo()
            if ticket.is_cancelled():
                return InvocationCancelled(run.invocation, timing())
            return self._failed(run, exc, timing())

    def _wait_for_packs(self, ticket: Ticket) -> float:
        """Wait until the packs are loaded, or the call is cancelled; returns the seconds that it took."""
        begin_s = time.perf_counter()
        while not self._loaded.wait(_LOOK_EVERY_S) and not ticket.is_cancelled():
            pass
        return time.perf_counter() - begin_s

    def _read(self, run: RunInvocation, ticket: Ticket) -> _Job:
        inputs = trees.decode(run.inputs)
        node, about = inputs["node"], inputs["about"]
        entry = self._registry.find(node["class_type"])
        if entry is None:
            raise PromptError(
                f"node class {node['class_type']!r} is not there any more: its pack was not loaded"
            )
        info = CallInfo(
            invocation=str(run.invocation),
            prompt_id=str(about.get("prompt_id", "")),
            node_id=str(node["id"]),
            class_type=entry.name,
            client_id=about.get("client_id"),
            tenant=str(about.get("tenant", "default")),
            preview_method=str(about.get("preview_method") or "none"),
        )
        places = places_of(about.get("places") or {}, self._bridge.places)
        running = Running(info, places, ticket.is_cancelled)
        with executing(Call(running, info)):
            shared = self._prompts.of(about, self._bridge.ask_parts)
        hidden = HiddenValues(hidden_values(about, info.node_id, shared), (about.get("hidden") or {}))
        calls = [{name: self._codec.load(value) for name, value in call.items()} for call in inputs["calls"]]
        return _Job(entry, contract_of(entry.cls), str(inputs["method"]), calls, hidden, running, shared)

    def _answers(self, job: _Job, is_async: bool, saving: Saving) -> list[dict[str, Any]]:
        # Only here may the code of a pack begin: its class may be made in a thread that it expects.
        info = job.running.info
        with executing(Call(job.running, info)):
            job.running.check()
            instance = self.instances.get(info.tenant, info.node_id, job.entry)
        function = job.contract.function(job.entry, instance, job.method, job.hidden)
        if is_async:
            work = self._gather(job, function)
            returned = asyncio.run_coroutine_threadsafe(work, self._loop).result()
        else:
            returned = [self._call(job, function, index) for index in range(len(job.calls))]
        if job.method == LAZY_CHECK:
            return [{"names": needed_names(each)} for each in returned]
        lists = _list_slots(job.entry.cls)
        with executing(Call(job.running, info)):
            return [answer_of(job.contract.outcome(job.entry, each), lists, saving) for each in returned]

    def _call(self, job: _Job, function: Callable[..., Any], index: int) -> Any:
        with executing(_numbered(job, index)):
            job.running.check()
            returned = function(**self._arguments(job, index))
            if inspect.isawaitable(returned):
                returned = _own_loop().run_until_complete(_wait_for(returned))
            return returned

    async def _gather(self, job: _Job, function: Callable[..., Any]) -> list[Any]:
        tasks = [asyncio.ensure_future(self._call_async(job, function, i)) for i in range(len(job.calls))]
        watch = asyncio.ensure_future(_watch(job.running))
        every = asyncio.gather(*tasks)
        try:
            either: set[asyncio.Future[Any]] = {every, watch}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not every.done():
                raise InterruptProcessingException
            return list(every.result())
        finally:
            for task in (*tasks, watch):
                task.cancel()
            await asyncio.gather(*tasks, watch, return_exceptions=True)

    async def _call_async(self, job: _Job, function: Callable[..., Any], index: int) -> Any:
        with executing(_numbered(job, index)):
            job.running.check()
            returned = function(**self._arguments(job, index))
            return await returned if inspect.isawaitable(returned) else returned

    def _arguments(self, job: _Job, index: int) -> dict[str, Any]:
        return job.contract.arguments(job.entry, job.method, job.calls[index], job.hidden)

    def _tell_changes(self, job: _Job) -> None:
        changed = job.shared.change()
        if changed is not None:
            self._bridge.metadata(InvocationId(job.running.info.invocation), changed)

    def _failed(self, run: RunInvocation, error: BaseException, timing: Timing) -> InvocationFailed:
        if isinstance(error, InterruptProcessingException):
            # The node itself stops its prompt: the server hears of it before it hears of the failure.
            self._bridge.stop_prompt_of(run.invocation)
            return InvocationFailed(run.invocation, _INTERRUPTED, words_of(error), (), timing)
        frames = format_frames(error, __file__)
        kind, message = kind_of(error), words_of(error)
        log.debug("%s failed: %s: %s", run.invocation, kind, message)
        return InvocationFailed(run.invocation, kind, message, frames, timing)

    def _serve_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        with torch.inference_mode():
            run_for_ever(self._loop)


def run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped: tasks of packs that leave the program do not end it."""
    while True:
        try:
            loop.run_forever()
        except BaseException as exc:  # noqa: BLE001 - custom-node call: whoever waits for the task gets it, too
            log.warning("a task of a pack raised %s: %s", type(exc).__name__, words_of(exc))
        else:
            return


def _numbered(job: _Job, index: int) -> Call:
    return Call(job.running, replace(job.running.info, list_index=index))


def _list_slots(cls: Any) -> list[bool]:
    return [bool(item) for item in getattr(cls, "OUTPUT_IS_LIST", None) or ()]


_loops = threading.local()


def _own_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of this thread, which nodes may ask for too; it is made at the first call."""
    loop: asyncio.AbstractEventLoop | None = getattr(_loops, "loop", None)
    if loop is None or loop.is_closed():
        loop = _loops.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    return loop


async def _wait_for(awaitable: Any) -> Any:
    return await awaitable


async def _watch(running: Running) -> None:
    """Return when the invocation is cancelled."""
    while not running.is_cancelled():  # noqa: ASYNC110 - asked of another thread
        await asyncio.sleep(_LOOK_EVERY_S)
