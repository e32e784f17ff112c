"""Run prompts: begin pending ones while there is room, follow each to its end, and leave the rest in order."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from comfyserverless import log_lines
from comfyserverless.control.cache import NodeCache
from comfyserverless.control.caches import TenantCaches
from comfyserverless.control.context import RunServices
from comfyserverless.control.describing import now_ms
from comfyserverless.control.files import FolderPaths
from comfyserverless.control.hosting.hosting import Hosting
from comfyserverless.control.metering.limits import Admission
from comfyserverless.control.records.ending import end_as_unplanned
from comfyserverless.control.records.packed import unpacked
from comfyserverless.control.records.prompts import Prompts
from comfyserverless.control.records.saves import RunPublisher
from comfyserverless.control.run import Run
from comfyserverless.control.views import Notice, QueueChanged, RunEnded, RunRecord, RunStatus
from comfyserverless.control.workers.pool import WorkerPool
from comfyserverless.core.errors import ComfyServerlessError
from comfyserverless.core.ids import PromptId, TenantId, WorkerId
from comfyserverless.graph.plan import Plan, Validation
from comfyserverless.graph.validation import validate
from comfyserverless.nodes.registry import BUILTIN
from comfyserverless.scheduling.policies.open_runs import is_one_queue, most_running

log = logging.getLogger(__name__)

_WORKERS_WITHIN_S = 120.0
"""How long prompts of the last server wait for a worker, so that nothing that ends a start is their fault."""


class Runs:
    """Own the runs of one server. services_of: what a run of a record gets; notify: where events go.

    With prompts of the last server in the queue nothing begins before a worker is there.
    """

    def __init__(
        self,
        pool: WorkerPool,
        caches: TenantCaches,
        admission: Admission,
        prompts: Prompts,
        services_of: Callable[[RunRecord, FolderPaths], RunServices],
        notify: Callable[[Notice], None],
        *,
        hosting: Hosting,
    ) -> None:
        self._hosting = hosting
        self._pool = pool
        self._policy = pool.policy
        self._caches = caches
        self._admission = admission
        self._prompts = prompts
        self._services_of = services_of
        self._notify = notify
        self.is_stopping = False
        self._runs: dict[tuple[TenantId, PromptId], Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: of prompts that run and have no plan yet: packs are asked about their nodes.
        self._readings: set[asyncio.Task[None]] = set()
        self._serials = itertools.count()
        self._wants_free: tuple[bool, bool] = (False, False)
        #: the runs that were under way when it was wanted; it happens when none of them is any more.
        self._before_free: list[Run] = []
        self._is_waiting_for_workers = prompts.has_restored
        self._restoring: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin prompts of the last server as soon as there is a worker."""
        if self._is_waiting_for_workers:
            self._restoring = asyncio.create_task(self._begin_restored(), name="restored-prompts")

    async def drain(self, within_s: float) -> None:
        """Begin nothing any more, and give what runs some time to end."""
        self.is_stopping = True
        if self._tasks and within_s:
            log.info("Waiting for %d running prompts, at most %g s", len(self._tasks), within_s)
            await asyncio.wait(self._tasks, timeout=within_s)

    async def stop(self) -> None:
        """Stop what runs, and leave it to the next server unless its user had interrupted it."""
        self.is_stopping = True
        if self._restoring is not None:
            self._restoring.cancel()
        for reading in self._readings:
            reading.cancel()
        for run in self._runs.values():
            run.interrupt()
        await asyncio.gather(*self._tasks, *self._readings, return_exceptions=True)

    def interrupt(self, prompt_id: PromptId | None, tenant: TenantId) -> bool:
        """Stop a running prompt (None: all running ones of the tenant); False if none was running."""
        running = self._prompts.queue.running(tenant)
        wanted = [record for record in running if prompt_id in (None, record.prompt_id)]
        for record in wanted:
            if (run := self._runs.get((tenant, record.prompt_id))) is not None:
                run.interrupt()
            self._prompts.stop(record)
        return bool(wanted)

    def free(self, *, unload_models: bool, free_memory: bool) -> None:
        """Drop cached weights on the workers, and with free_memory the cached node results too.

        Happens when what runs now has ended, so that a server that is never idle does it as well; what others
        use at that moment stays.
        """
        models, memory = self._wants_free
        self._wants_free = (models or unload_models, memory or free_memory)
        self._before_free = list(self._runs.values())
        self._free_if_wanted()

    def let_go(self, worker: WorkerId) -> bool:
        """Drop what runs keep in a worker's arena and do not need any more; False if there was nothing."""
        answers = [run.let_go(worker) for run in self._runs.values()]
        return any(answers)

    async def _begin_restored(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WORKERS_WITHIN_S):
                await self._pool.has_joined.wait()
        self._is_waiting_for_workers = False
        self.pump()

    def pump(self) -> None:
        """Start pending prompts while there is room for their tenant."""
        if self.is_stopping or self._is_waiting_for_workers:
            return
        queue, in_one = self._prompts.queue, is_one_queue(self._policy)
        while (tenant := next(filter(self._has_room, queue.waiting(by_arrival=in_one)), None)) is not None:
            taken = queue.take(tenant)
            assert taken is not None, "a tenant that waits has a pending prompt"
            self._begin(*taken)

    def _has_room(self, tenant: TenantId) -> bool:
        """Tell whether the next prompt of a tenant may begin. Pre: one is pending."""
        queue = self._prompts.queue
        line = queue.line(tenant)
        most = most_running(line, self._policy, self._pool.slot_count, queue.running_count())
        return line.running < most and line.running < self._admission.room(tenant, most, self.pump)

    def _begin(self, record: RunRecord, plan: Plan | None) -> None:
        record.status = RunStatus.RUNNING
        self._announce(record.tenant)
        record.prompt, record.extra_data = unpacked(record.prompt), unpacked(record.extra_data)
        files = self._admission.tenants.files(record.tenant)
        if plan is None and self._hosting.is_needed(record.prompt):
            reading = asyncio.create_task(self._begin_read(record, files))
            self._readings.add(reading)
            reading.add_done_callback(self._readings.discard)
        elif plan is None:
            self._begin_validated(record, files, validate(record.prompt, BUILTIN, files, record.targets))
        else:
            self._begin_planned(record, files, plan)

    async def _begin_read(self, record: RunRecord, files: FolderPaths) -> None:
        """Begin a prompt of the last server once the packs have said what its nodes are."""
        try:
            validation = await self._hosting.validated_at_last(record.prompt, files, record.targets)
        except asyncio.CancelledError:
            self._prompts.park(record)
            raise
        except ComfyServerlessError as exc:
            validation = Validation(None, {"message": str(exc), "details": ""})
        self._begin_validated(record, files, validation)

    def _begin_validated(self, record: RunRecord, files: FolderPaths, validation: Validation) -> None:
        if validation.plan is None:
            self._refuse(record, validation.error or {})
        else:
            self._begin_planned(record, files, validation.plan)

    def _begin_planned(self, record: RunRecord, files: FolderPaths, plan: Plan) -> None:
        services = self._services_of(record, files)
        cache = self._caches.of(record.tenant, files)
        run = Run(record, plan, services, cache, self._notify, next(self._serials))
        self._runs[record.tenant, record.prompt_id] = run
        if self._prompts.is_stopped(record):
            run.interrupt()
        work = self._execute(run, cache, services.publisher)
        with log_lines.about(prompt_id=record.prompt_id, tenant=record.tenant):
            task = asyncio.create_task(work, name=f"prompt-{record.prompt_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refuse(self, record: RunRecord, error: Mapping[str, Any]) -> None:
        """End a prompt that was accepted and cannot run any more."""
        end_as_unplanned(record, f"{error.get('message', '')}: {error.get('details', '')}", now_ms())
        self._prompts.end(record, ())
        for event in record.messages:
            self._notify(event)
        self._announce(record.tenant)
        self._notify(RunEnded(record.prompt_id, record.tenant, record.client_id))

    async def _execute(self, run: Run, cache: NodeCache, publisher: RunPublisher) -> None:
        record = run.record
        try:
            await self._prompts.begin(record)
            await run.read()
            self._caches.retain(cache, self._signatures_in_use(record.tenant), run.homes)
            self._hosting.retain(record.tenant, self._plans_of(record.tenant))
            await run.execute()
            self._caches.drop_added(cache, run.executed_homes, self._signatures_in_use(record.tenant))
        except Exception as exc:
            log.exception("prompt %s ended by a fault of the server", record.prompt_id)
            run.end_by_fault(exc)
        finally:
            self._runs.pop((record.tenant, record.prompt_id), None)
            self._end(record, publisher)
            self._announce(record.tenant)
            run.announce_end()
            self._free_if_wanted()
            self.pump()

    def _end(self, record: RunRecord, publisher: RunPublisher) -> None:
        if self.is_stopping and record.status is RunStatus.INTERRUPTED and not self._prompts.is_stopped(record):
            self._prompts.park(record)
        else:
            self._admission.book.write()  # first: what it cost is on disk when its end is
            self._prompts.end(record, publisher.folders)

    def _signatures_in_use(self, tenant: TenantId) -> set[Hashable | None]:
        runs = (run for run in self._runs.values() if run.record.tenant == tenant)
        return {signature for run in runs for signature in run.signatures.values()}

    def _plans_of(self, tenant: TenantId) -> list[Plan]:
        return [run.plan for run in self._runs.values() if run.record.tenant == tenant]

    def _free_if_wanted(self) -> None:
        models, memory = self._wants_free
        self._before_free = [run for run in self._before_free if run in self._runs.values()]
        if self._before_free or not models:
            return
        self._wants_free = (False, False)
        self._pool.unload_models()
        if memory:
            self._caches.clear()

    def _announce(self, tenant: TenantId) -> None:
        self._notify(QueueChanged(tenant, self._prompts.queue.remaining(tenant)))
