"""Run the system behind the server: queue, runs, workers, caches; the server talks to this class only."""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from comfyserverless.control.accounts.tenants import Tenants, Weights
from comfyserverless.control.cache import CachedNode, NodeCache
from comfyserverless.control.context import RunServices
from comfyserverless.control.describing import now_ms
from comfyserverless.control.files import FolderPaths
from comfyserverless.control.queue import PromptQueue
from comfyserverless.control.run import Run
from comfyserverless.control.saving import Publisher, remove_staged
from comfyserverless.control.views import (
    Notice,
    QueueChanged,
    RunRecord,
    RunStatus,
    SubmitRequest,
    SubmitResult,
    TenantUsage,
    WorkerView,
)
from comfyserverless.control.workers.pool import WorkerPool
from comfyserverless.control.workers.processes import check_sizes
from comfyserverless.control.workers.scratch import Scratch, shared_folder
from comfyserverless.core.config import EngineConfig
from comfyserverless.core.ids import DEFAULT_TENANT, PromptId, TenantId, WorkerId
from comfyserverless.graph.plan import Plan
from comfyserverless.graph.validation import validate
from comfyserverless.nodes.registry import BUILTIN
from comfyserverless.scheduling.state import SchedulingConfig

log = logging.getLogger(__name__)

_RETRY_AFTER_S = 5


class Engine:
    """Own the queue, the runs and the workers of one server; all methods run on its event loop.

    A tenant runs as many prompts at once as there are workers: with one worker it is one, as in ComfyUI. Prompt
    ids are the tenant's own: what one calls a prompt says nothing about another's. So are cached results.
    """

    def __init__(self, config: EngineConfig, tenants: Tenants) -> None:
        self._config = config
        self._tenants = tenants
        self._queue = PromptQueue(config.history_limit)
        self._caches: dict[TenantId, NodeCache] = {}
        #: the files that a tenant could see when its cache was last used
        self._cached_with: dict[TenantId, FolderPaths] = {}
        self._runs: dict[tuple[TenantId, PromptId], Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[Callable[[Notice], None]] = []
        #: tenant -> how many prompts without a number of their own it has sent
        self._counters: dict[TenantId, int] = {}
        self._serials = itertools.count()
        self._wants_free: tuple[bool, bool] = (False, False)
        self._is_stopping = False
        NodeCache(config.cache, config.cache_lru_entries)  # a bad mode is an error at start, not at first use
        check_sizes(config.worker)  # first: a start that is refused leaves nothing behind
        self._scratch = Scratch(shared_folder())
        scheduling = SchedulingConfig(
            slack_s=config.slack_s,
            max_attempts=config.max_attempts,
            overlap_callbacks=True,
            tenant_weights=Weights(tenants),
        )
        self._pool = WorkerPool(config.worker, scheduling, self._scratch, self._let_go_of_cached)
        self._services = RunServices(
            dispatcher=self._pool.dispatcher,
            files=tenants.shared_files,
            publisher=Publisher(),
            embeds_metadata=config.embeds_metadata,
            preview_method=config.preview_method,
            staging_tag=self._scratch.tag,
        )

    async def start(self) -> None:
        """Start the worker processes in the background and begin to run prompts; returns at once."""
        self._remove_staged()
        await self._pool.start()

    async def stop(self) -> None:
        """Stop runs and workers; leaves no process, arena or staging file behind."""
        self._is_stopping = True
        for run in self._runs.values():
            run.interrupt()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pool.stop()
        self._scratch.close()
        self._remove_staged()

    def _remove_staged(self) -> None:
        for kind in ("output", "temp"):
            remove_staged(self._tenants.shared_files.base(kind), self._scratch.is_live)

    def subscribe(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        """Call `listener` with every notice, in order, on the event loop; returns the way to unsubscribe."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # -- prompts ----------------------------------------------------------------------------------

    def submit(self, request: SubmitRequest) -> SubmitResult:
        """Validate and enqueue a prompt. The counter behind `number` also advances for rejected ones."""
        number = self._next_number(request)
        max_queued = self._tenants.limits(request.tenant).max_queued
        if max_queued is not None and self._queue.pending_count(request.tenant) >= max_queued:
            return _refused_for_now(number, max_queued)
        validation = validate(request.prompt, BUILTIN, self._tenants.files(request.tenant), request.targets)
        if validation.plan is None:
            return SubmitResult(None, number, validation.error, validation.node_errors)
        prompt_id = request.prompt_id or PromptId(str(uuid.uuid4()))
        known = self._queue.find(request.tenant, prompt_id)
        if known is not None and known.ended_ms is None:
            error = {
                "type": "invalid_prompt_id",
                "message": "This prompt_id is in use",
                "details": f"prompt {prompt_id} is {known.status.value}",
                "extra_info": {},
            }
            return SubmitResult(None, number, error, {})
        record = RunRecord(
            prompt_id=prompt_id,
            tenant=request.tenant,
            number=number,
            prompt=validation.plan.prompt,
            extra_data={**request.extra_data, "create_time": now_ms()},
            targets=validation.plan.targets,
            client_id=request.client_id,
            created_ms=now_ms(),
        )
        self._queue.drop_history(request.tenant, (prompt_id,))
        self._queue.add(record, validation.plan)
        self._announce(request.tenant)
        asyncio.get_running_loop().call_soon(self._pump)
        return SubmitResult(prompt_id, number, None, validation.node_errors)

    def remaining(self, tenant: TenantId = DEFAULT_TENANT) -> int:
        """Return how many prompts are pending or running."""
        return self._queue.remaining(tenant)

    def running(self, tenant: TenantId = DEFAULT_TENANT) -> list[RunRecord]:
        """List the running prompts."""
        return self._queue.running(tenant)

    def pending(self, tenant: TenantId = DEFAULT_TENANT) -> list[RunRecord]:
        """List the waiting prompts, next one first."""
        return self._queue.pending(tenant)

    def history(self, tenant: TenantId = DEFAULT_TENANT) -> Sequence[RunRecord]:
        """List ended prompts, oldest first (bounded; the oldest are dropped)."""
        return self._queue.history(tenant)

    def find(self, prompt_id: PromptId, tenant: TenantId = DEFAULT_TENANT) -> RunRecord | None:
        """Return the record of a prompt in any state, None if this tenant has no such prompt."""
        return self._queue.find(tenant, prompt_id)

    def interrupt(self, prompt_id: PromptId | None, tenant: TenantId = DEFAULT_TENANT) -> bool:
        """Stop a running prompt (None: all running ones of the tenant); False if none was running."""
        wanted = [
            record.prompt_id
            for record in self._queue.running(tenant)
            if prompt_id is None or record.prompt_id == prompt_id
        ]
        for each in wanted:
            self._runs[tenant, each].interrupt()
        return bool(wanted)

    def cancel(self, prompt_id: PromptId, tenant: TenantId = DEFAULT_TENANT) -> bool:
        """Interrupt a running prompt or drop a pending one; False if it was neither."""
        return self.interrupt(prompt_id, tenant) or self.delete_pending([prompt_id], tenant) > 0

    def delete_pending(self, prompt_ids: Sequence[PromptId], tenant: TenantId = DEFAULT_TENANT) -> int:
        """Drop pending prompts; unknown and running ones are left alone. Returns how many were dropped."""
        return self._dropped(self._queue.drop_pending(tenant, set(prompt_ids)), tenant)

    def clear_pending(self, tenant: TenantId = DEFAULT_TENANT) -> int:
        """Drop all pending prompts of the tenant."""
        return self._dropped(self._queue.drop_pending(tenant, None), tenant)

    def delete_history(self, prompt_ids: Sequence[PromptId], tenant: TenantId = DEFAULT_TENANT) -> None:
        """Forget ended prompts; unknown ids are ignored."""
        self._queue.drop_history(tenant, prompt_ids)

    def clear_history(self, tenant: TenantId = DEFAULT_TENANT) -> None:
        """Forget all ended prompts of the tenant."""
        self._queue.drop_history(tenant, None)

    def free(self, *, unload_models: bool, free_memory: bool) -> None:
        """Drop cached weights on the workers, and with free_memory the cached node results too, once idle."""
        models, memory = self._wants_free
        self._wants_free = (models or unload_models or free_memory, memory or free_memory)
        self._free_if_idle()

    def forget_results(self, tenant: TenantId) -> None:
        """Drop the cached node results of one tenant; its running prompts keep what they use."""
        cache = self._caches.get(tenant)
        if cache is not None:
            self._unpin(cache.clear())

    def busy_tenants(self) -> list[TenantId]:
        """List the tenants that have something waiting or running."""
        return [tenant for tenant in self._queue.tenants() if self._queue.remaining(tenant)]

    def stop_tenant(self, tenant: TenantId) -> None:
        """Drop and interrupt everything that a tenant has waiting or running: its account has ended."""
        self.clear_pending(tenant)
        self.interrupt(None, tenant)

    def usage(self, tenant: TenantId) -> TenantUsage:
        """Tell what a tenant has taken up since the server started."""
        return TenantUsage(
            tenant=tenant,
            weight=self._tenants.weight(tenant),
            pending=self._queue.pending_count(tenant),
            running=len(self._queue.running(tenant)),
            service_s=self._pool.dispatcher.service_s(tenant),
            waited_s=self._pool.dispatcher.waited_s(tenant),
        )

    def workers(self) -> list[WorkerView]:
        """List the worker slots with their latest figures."""
        return self._pool.views()

    # -- running ----------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Start pending prompts while there is room for their tenant."""
        if self._is_stopping:
            return
        for tenant in self._queue.tenants():
            room = self._pool.slot_count
            if (max_running := self._tenants.limits(tenant).max_running) is not None:
                room = min(room, max_running)
            while len(self._queue.running(tenant)) < room:
                taken = self._queue.take(tenant)
                if taken is None:
                    break
                self._begin(*taken)

    def _begin(self, record: RunRecord, plan: Plan) -> None:
        record.status = RunStatus.RUNNING
        self._announce(record.tenant)
        files = self._tenants.files(record.tenant)
        cache = self._cache_of(record.tenant, files)
        services = replace(self._services, files=files)
        run = Run(record, plan, services, cache, self._notify, next(self._serials))
        self._runs[record.tenant, record.prompt_id] = run
        task = asyncio.create_task(self._execute(run, cache), name=f"prompt-{record.prompt_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cache_of(self, tenant: TenantId, files: FolderPaths) -> NodeCache:
        """Return a tenant's cache, emptied if the tenant may use other models than when it was filled."""
        if self._cached_with.get(tenant) is not files:
            self.forget_results(tenant)
            self._cached_with[tenant] = files
        return self._caches.setdefault(tenant, NodeCache(self._config.cache, self._config.cache_lru_entries))

    async def _execute(self, run: Run, cache: NodeCache) -> None:
        record = run.record
        try:
            run.read()
            self._unpin(cache.retain(self._signatures_in_use(record.tenant)))
            await run.execute()
        except Exception as exc:
            log.exception("prompt %s ended by a fault of the server", record.prompt_id)
            run.end_by_fault(exc)
        finally:
            self._runs.pop((record.tenant, record.prompt_id), None)
            self._queue.end(record)
            self._announce(record.tenant)
            run.announce_end()
            self._free_if_idle()
            self._pump()

    def _signatures_in_use(self, tenant: TenantId) -> set[Hashable | None]:
        runs = (run for run in self._runs.values() if run.record.tenant == tenant)
        return {signature for run in runs for signature in run.signatures.values()}

    def _free_if_idle(self) -> None:
        models, memory = self._wants_free
        if self._runs or not models:
            return
        self._wants_free = (False, False)
        self._pool.unload_models()
        if memory:
            for cache in self._caches.values():
                self._unpin(cache.clear())

    def _let_go_of_cached(self, worker: WorkerId) -> bool:
        """Drop cached results in a worker's arena: it is lost, or full. False if there were none.

        Results that runs use as well stay: those are worth rebuilding, and worth their space.
        """
        dropped = []
        for cache in self._caches.values():
            there = self._pool.dispatcher.on_worker(cache.invocations(), worker)
            dropped += cache.discard(there)
        self._unpin(dropped)
        return bool(dropped)

    def _unpin(self, entries: Sequence[CachedNode]) -> None:
        for entry in entries:
            self._pool.dispatcher.unpin(entry.invocations, "cache")

    # -- telling ----------------------------------------------------------------------------------

    def _next_number(self, request: SubmitRequest) -> float:
        if request.number is not None:
            return request.number
        counter = self._counters.get(request.tenant, 0)
        self._counters[request.tenant] = counter + 1
        return -counter if request.front else counter

    def _dropped(self, count: int, tenant: TenantId) -> int:
        if count:
            self._announce(tenant)
        return count

    def _announce(self, tenant: TenantId) -> None:
        self._notify(QueueChanged(tenant, self._queue.remaining(tenant)))

    def _notify(self, notice: Notice) -> None:
        for listener in tuple(self._listeners):
            listener(notice)


def _refused_for_now(number: float, max_queued: int) -> SubmitResult:
    """Answer for a tenant whose queue is full."""
    error = {
        "type": "queue_full",
        "message": "Too many prompts are waiting",
        "details": f"{max_queued} prompts may wait at once; send this one again later",
        "extra_info": {},
    }
    return SubmitResult(None, number, error, {}, retry_after_s=_RETRY_AFTER_S)
