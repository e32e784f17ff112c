"""Run the system behind the server: queue, runs, workers, caches; the server talks to this class only."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Sequence

from comfyserverless.control.accounts.tenants import Tenants, Weights
from comfyserverless.control.caches import TenantCaches
from comfyserverless.control.context import RunServices
from comfyserverless.control.describing import now_ms
from comfyserverless.control.files import FolderPaths
from comfyserverless.control.guidance.choices import Choices
from comfyserverless.control.hosting.folders import follow_folders
from comfyserverless.control.hosting.hosting import Hosting
from comfyserverless.control.metering.book import UsageBook
from comfyserverless.control.metering.limits import Admission, counted_lanes
from comfyserverless.control.metrics.metrics import Metrics
from comfyserverless.control.metrics.state import Sight
from comfyserverless.control.overview.overview import Overview
from comfyserverless.control.records.base import RecordQuery
from comfyserverless.control.records.codec import workflow_id
from comfyserverless.control.records.opening import open_records
from comfyserverless.control.records.packed import PackedJson
from comfyserverless.control.records.prompts import Prompts
from comfyserverless.control.records.store import RecordStore
from comfyserverless.control.runs import Runs
from comfyserverless.control.saving import remove_staged
from comfyserverless.control.views import (
    Notice,
    QueueChanged,
    RecoveryView,
    RunRecord,
    SubmitRequest,
    SubmitResult,
    TenantUsage,
    WorkerView,
    priority_of,
)
from comfyserverless.control.workers.pool import WorkerPool
from comfyserverless.control.workers.processes import check_sizes
from comfyserverless.control.workers.scratch import Scratch, shared_folder
from comfyserverless.control.workers.sizing import count_gpus
from comfyserverless.core.config import EngineConfig
from comfyserverless.core.errors import CapacityError
from comfyserverless.core.ids import DEFAULT_TENANT, PromptId, TenantId, WorkerId
from comfyserverless.graph.plan import Plan
from comfyserverless.scheduling.config import SchedulingConfig, policy_named

log = logging.getLogger(__name__)


class Engine:
    """Own the queue, the runs and the workers of one server; all methods run on its event loop.

    A tenant runs as many prompts at once as there are workers: with one worker it is one, as in ComfyUI, and
    what it calls more urgent begins beside it. Prompt ids are the tenant's own: what one calls a prompt says
    nothing about another's. So are cached results.
    Raises ConfigError for settings that cannot work, records that cannot be opened among them.
    """

    def __init__(self, config: EngineConfig, tenants: Tenants) -> None:
        self._tenants = tenants
        self._listeners: list[Callable[[Notice], None]] = []
        self._caches = TenantCaches(config.cache, config.cache_lru_entries, lambda: self._pool.dispatcher)
        check_sizes(config.worker)  # first: a start that is refused leaves nothing behind
        backend, opening = open_records(config, now_ms())
        store = RecordStore(backend)
        self._prompts = Prompts(store, opening)
        self._queue = self._prompts.queue
        self.book = UsageBook(store, opening, now_ms)
        lanes = counted_lanes(count_gpus(), config.pack_flags)
        self._admission = Admission(tenants, self._queue, self.book, now_ms, lanes)
        self._scratch = Scratch(shared_folder())
        profiles = config.worker.profiles
        self._choices = Choices(None if profiles is None else profiles / "guidance.json")
        scheduling = SchedulingConfig(
            slack_s=config.slack_s,
            grace_s=config.grace_s,
            max_attempts=config.max_attempts,
            checkpoint_steps=config.checkpoint_steps,
            overlap_callbacks=True,
            tenant_weights=Weights(tenants),
            policy=policy_named(config.policy),
        )
        self.hosting = Hosting(config, tenants.shared_files, self._scratch.folder)
        host = self.hosting.wanted_host
        self._pool = WorkerPool(config.worker, scheduling, self._scratch, self._let_go, host)
        self.overview = Overview(self._pool.dispatcher.state, self._pool.dispatcher.meter)
        self.metrics = Metrics(tenants.names, self._pool.dispatcher.meter, self._queue.find, self._look)
        self.subscribe(self.metrics.on_notice)
        self._pool.dispatcher.meter.listen(self.book.on_stay)
        parts = (self._pool, self._caches, self._admission, self._prompts, self._services_of, self._notify)
        self._runs = Runs(*parts, hosting=self.hosting)
        follow_folders(self.hosting.host, tenants)
        self._config = config
        self._starting: asyncio.Task[None] | None = None
        """The task that starts the engine, as long as it does."""

    async def start(self) -> None:
        """Start the worker processes in the background and begin to run prompts; returns at once."""
        self._starting = asyncio.current_task()
        self._remove_staged()
        await self.hosting.start()
        await self._pool.start()
        self._runs.start()
        self._starting = None

    async def drain(self, within_s: float) -> None:
        """Accept and begin nothing any more, and give what runs some time to end."""
        await self._runs.drain(within_s)

    async def stop(self) -> None:
        """Stop runs and workers, and leave what has not ended to the next server.

        Leaves no process, arena or staging file behind, also if a part cannot be stopped; then it raises why.
        """
        if self._starting is not None:  # what it starts after this would stay
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        async with contextlib.AsyncExitStack() as rest:  # the last one first
            rest.callback(self._remove_staged)
            rest.callback(self._scratch.close)
            rest.push_async_callback(asyncio.to_thread, self._prompts.close)
            rest.callback(self.book.write)
            rest.callback(self._admission.close)
            rest.push_async_callback(self.hosting.stop)
            rest.push_async_callback(self._pool.stop)
            await self._runs.stop()

    def _remove_staged(self) -> None:
        for kind in ("output", "temp"):
            remove_staged(self._tenants.shared_files.base(kind), self._scratch.is_live)

    def subscribe(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        """Call `listener` with every notice, in order, on the event loop; returns the way to unsubscribe."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # -- prompts ----------------------------------------------------------------------------------

    async def submit(self, request: SubmitRequest) -> SubmitResult:
        """Validate and enqueue a prompt; an accepted one is on disk when this returns.

        The counter behind `number` also advances for rejected ones. Raises CapacityError if the prompt cannot
        be recorded, or the server is stopping.
        """
        if self._runs.is_stopping:
            raise CapacityError("The server is stopping; send this again later")
        tenant = request.tenant
        number = request.number
        if number is None:
            number = self._prompts.next_number(tenant, front=request.front)
        refused = self._admission.refusal(tenant, number)
        if refused is not None:
            return refused
        files = self._tenants.files(tenant)
        validation = await self.hosting.validated(request.prompt, files, request.targets)
        if validation.plan is None:
            return SubmitResult(None, number, validation.error, validation.node_errors)
        prompt_id = request.prompt_id or PromptId(str(uuid.uuid4()))
        holder = self._queue.holder(tenant, prompt_id)
        if holder is not None:
            return _refused_id(number, holder)
        self.book.part(tenant, prompt_id)
        record = _record_of(request, prompt_id, number, validation.plan)
        accepted = self._prompts.accept(record, validation.plan, lambda: self._on_accepted(tenant))
        await asyncio.wait({accepted})
        accepted.result()
        return SubmitResult(prompt_id, number, None, validation.node_errors)

    def _on_accepted(self, tenant: TenantId) -> None:
        self._announce(tenant)
        asyncio.get_running_loop().call_soon(self._runs.pump)  # the answer to the submission goes out first

    def remaining(self, tenant: TenantId = DEFAULT_TENANT) -> int:
        """Return how many prompts are pending or running."""
        return self._queue.remaining(tenant)

    def running(self, tenant: TenantId = DEFAULT_TENANT) -> list[RunRecord]:
        """List the running prompts."""
        return self._queue.running(tenant)

    def pending(self, tenant: TenantId = DEFAULT_TENANT, limit: int | None = None) -> list[RunRecord]:
        """List the waiting prompts, next one first, at most `limit`."""
        return self._queue.pending(tenant, limit)

    async def history_count(self, tenant: TenantId = DEFAULT_TENANT) -> int:
        """Count the ended prompts that are kept."""
        return await self._prompts.history_count(tenant)

    async def history(
        self, tenant: TenantId = DEFAULT_TENANT, *, start: int = 0, count: int
    ) -> list[RunRecord]:
        """Return ended prompts, oldest end first, from position `start` on."""
        return await self._prompts.history(tenant, start, count)

    async def select(self, query: RecordQuery, start: int, count: int | None) -> tuple[list[RunRecord], int]:
        """Return a page of a sorted list of prompts in any state, and how long the list is."""
        return await self._prompts.select(query, start, count)

    async def find(self, prompt_id: PromptId, tenant: TenantId = DEFAULT_TENANT) -> RunRecord | None:
        """Return the record of a prompt in any state, None if this tenant has no such prompt."""
        return await self._prompts.find(tenant, prompt_id)

    async def settled(self) -> None:
        """Wait until what was done to queue and history before is on disk."""
        await self._prompts.settled()

    def interrupt(self, prompt_id: PromptId | None, tenant: TenantId = DEFAULT_TENANT) -> bool:
        """Stop a running prompt (None: all running ones of the tenant); False if none was running."""
        return self._runs.interrupt(prompt_id, tenant)

    def cancel(self, prompt_id: PromptId, tenant: TenantId = DEFAULT_TENANT) -> bool:
        """Interrupt a running prompt or drop a pending one; False if it was neither."""
        return self.interrupt(prompt_id, tenant) or self.delete_pending([prompt_id], tenant) > 0

    def delete_pending(self, prompt_ids: Sequence[PromptId], tenant: TenantId = DEFAULT_TENANT) -> int:
        """Drop pending prompts; unknown and running ones are left alone. Returns how many were dropped."""
        return self._dropped(self._prompts.drop_pending(tenant, prompt_ids), tenant)

    def clear_pending(self, tenant: TenantId = DEFAULT_TENANT) -> int:
        """Drop all pending prompts of the tenant."""
        return self._dropped(self._prompts.drop_pending(tenant, None), tenant)

    def delete_history(self, prompt_ids: Sequence[PromptId], tenant: TenantId = DEFAULT_TENANT) -> None:
        """Forget ended prompts; unknown ids are ignored."""
        self._prompts.drop_history(tenant, prompt_ids)

    def clear_history(self, tenant: TenantId = DEFAULT_TENANT) -> None:
        """Forget all ended prompts of the tenant."""
        self._prompts.drop_history(tenant, None)

    def free(self, *, unload_models: bool, free_memory: bool) -> None:
        """Drop cached weights on the workers, and with free_memory node results, when what runs has ended."""
        self._runs.free(unload_models=unload_models or free_memory, free_memory=free_memory)

    def forget_results(self, tenant: TenantId) -> None:
        """Drop the cached node results of one tenant; its running prompts keep what they use."""
        self._caches.clear(tenant)

    def busy_tenants(self) -> list[TenantId]:
        """List the tenants that have something waiting or running."""
        return [tenant for tenant in self._queue.tenants() if self._queue.remaining(tenant)]

    def stop_tenant(self, tenant: TenantId) -> None:
        """Drop and interrupt everything that a tenant has waiting or running: its account has ended."""
        self.clear_pending(tenant)
        self.interrupt(None, tenant)

    def usage(self, tenant: TenantId) -> TenantUsage:
        """Tell what a tenant takes up, and has taken up so far."""
        return TenantUsage(
            tenant=tenant,
            weight=self._tenants.weight(tenant),
            pending=self._queue.pending_count(tenant),
            running=len(self._queue.running(tenant)),
            service_s=self.book.service_s(tenant),
            today_s=self.book.today_s(tenant),
            waited_s=self._pool.dispatcher.waited_s(tenant),
        )

    def recovery(self) -> RecoveryView:
        """Tell what losses of workers have cost."""
        return self._pool.dispatcher.recovery()

    def workers(self) -> list[WorkerView]:
        """List the worker slots with their latest figures."""
        return self._pool.views()

    def obstacles(self) -> list[str]:
        """Say why prompts cannot be taken, or run, now; nothing if they can."""
        found = ["The server is stopping"] if self._runs.is_stopping else []
        found += [] if self._pool.has_workers else ["No worker is ready"]
        return found + ([] if self._prompts.can_write() else ["Prompts cannot be recorded"])

    def _let_go(self, worker: WorkerId) -> bool:
        """Drop results in a worker's arena that only wait to be used again; False if there were none."""
        was_cached = self._caches.let_go(worker)
        return self._runs.let_go(worker) or was_cached

    def _look(self) -> Sight:
        state, is_ready = self._pool.dispatcher.state, not self.obstacles()
        return Sight(self._queue, state, self.workers(), self.recovery(), is_ready, now_ms())

    # -- telling ----------------------------------------------------------------------------------

    def _dropped(self, count: int, tenant: TenantId) -> int:
        if count:
            self._announce(tenant)
        return count

    def _announce(self, tenant: TenantId) -> None:
        self._notify(QueueChanged(tenant, self._queue.remaining(tenant)))

    def _services_of(self, record: RunRecord, files: FolderPaths) -> RunServices:
        return RunServices(
            dispatcher=self._pool.dispatcher,
            files=files,
            publisher=self._prompts.publisher_of(record),
            embeds_metadata=self._config.embeds_metadata,
            preview_method=self._config.preview_method,
            preview_px=self._config.preview_px,
            split_guidance=self._config.split_guidance,
            choices=self._choices,
            staging_tag=self._scratch.tag,
            classes=self.hosting.classes(files, record.prompt),
        )

    def _notify(self, notice: Notice) -> None:
        for listener in tuple(self._listeners):
            listener(notice)


def _refused_id(number: float, holder: RunRecord) -> SubmitResult:
    """Answer for an id that another prompt of the tenant has now."""
    error = {
        "type": "invalid_prompt_id",
        "message": "This prompt_id is in use",
        "details": f"prompt {holder.prompt_id} is {holder.status.value}",
        "extra_info": {},
    }
    return SubmitResult(None, number, error, {})


def _record_of(request: SubmitRequest, prompt_id: PromptId, number: float, plan: Plan) -> RunRecord:
    created_ms = now_ms()
    return RunRecord(
        prompt_id=prompt_id,
        tenant=request.tenant,
        number=number,
        prompt=PackedJson.of(plan.prompt),
        extra_data=PackedJson.of({**request.extra_data, "create_time": created_ms}),
        targets=plan.targets,
        client_id=request.client_id,
        created_ms=created_ms,
        priority=priority_of(request.extra_data),
        workflow=workflow_id(request.extra_data),
    )
