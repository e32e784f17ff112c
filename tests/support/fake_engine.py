"""Stand in for the engine in tests of the server's routes: keeps records, runs nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from comfyserverless.control.files import FolderPaths
from comfyserverless.control.hosting.host import HostView
from comfyserverless.control.metering.book import UsageBook
from comfyserverless.control.metering.measured import Meter
from comfyserverless.control.metrics.metrics import Metrics
from comfyserverless.control.metrics.state import Sight
from comfyserverless.control.overview.overview import Overview
from comfyserverless.control.records.base import RecordQuery
from comfyserverless.control.records.queue import PromptQueue
from comfyserverless.control.views import (
    Notice,
    QueueChanged,
    RecoveryView,
    RunRecord,
    RunStatus,
    SubmitRequest,
    SubmitResult,
    TenantUsage,
    WorkerView,
)
from comfyserverless.core.hosting import Catalog, NodeInfo
from comfyserverless.core.ids import DEFAULT_TENANT, PromptId, TenantId
from comfyserverless.scheduling.state import SchedulingConfig, SchedulingState

ACTIVE = (RunStatus.PENDING, RunStatus.RUNNING)


@dataclass(slots=True)
class FakeHosting:
    """Stand in for the packs of a server: entries of their classes by name, and which were renamed.

    catalog: what they bring, if it is more than that; answers: kind of a question -> what answers it;
    listeners: to notices, by kind; asking: what answers requests of the host, by kind.
    """

    infos: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    replacements: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    catalog: Catalog | None = None
    answers: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    listeners: dict[str, Callable[[Any, Any], None]] = field(default_factory=dict)
    asking: dict[str, Callable[[Any, Any], Any]] = field(default_factory=dict)

    async def loaded(self, within_s: float = 0.0) -> Catalog:
        classes = {name: NodeInfo(name, (), (), {}, dict(info)) for name, info in self.infos.items()}
        return self.catalog or Catalog((), classes, replacements=self.replacements)

    async def loaded_soon(self, within_s: float) -> Catalog:
        return await self.loaded()

    async def ask(self, kind: str, payload: Any, within_s: float = 0.0) -> Any:
        return self.answers[kind](payload)

    def listen(self, kind: str, listener: Callable[[Any, Any], None]) -> None:
        self.listeners[kind] = listener

    @property
    def host(self) -> FakeHosting:
        return self

    @property
    def requests(self) -> FakeHosting:
        return self

    def answer(self, kind: str, answer: Callable[[Any, Any], Any]) -> None:
        self.asking[kind] = answer

    def view(self) -> HostView:
        return HostView("none", None, 0, ())

    async def object_info(
        self, files: FolderPaths, class_type: str | None = None, within_s: float = 0.0
    ) -> Mapping[str, Any]:
        return {name: info for name, info in self.infos.items() if class_type in (None, name)}


@dataclass(slots=True)
class FakeEngine:
    """Accept every prompt as pending; tests set the status of records and emit notices themselves.

    refusal: what the next submissions are answered with; freed: the arguments of `free` calls;
    forgotten, stopped: tenants whose results were dropped, or whose work was stopped; settlings: how often
    somebody waited for what was done to be on disk.
    """

    records: dict[PromptId, RunRecord] = field(default_factory=dict)
    listeners: list[Callable[[Notice], None]] = field(default_factory=list)
    requests: list[SubmitRequest] = field(default_factory=list)
    interrupted: list[PromptId | None] = field(default_factory=list)
    freed: list[tuple[bool, bool]] = field(default_factory=list)
    forgotten: list[TenantId] = field(default_factory=list)
    stopped: list[TenantId] = field(default_factory=list)
    views: list[WorkerView] = field(default_factory=list)
    refusal: SubmitResult | None = None
    failure: Exception | None = None
    settlings: int = 0
    book: UsageBook | None = None
    overview: Overview = field(
        default_factory=lambda: Overview(SchedulingState(SchedulingConfig(slack_s=2.0)), Meter(), lambda: 0.0)
    )

    hosting: FakeHosting = field(default_factory=FakeHosting)
    obstructed: list[str] = field(default_factory=list)
    metrics: Metrics = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.names, Meter(), lambda tenant, run: self.records.get(run), self._look)

    def names(self) -> list[TenantId]:
        return [record.tenant for record in self.records.values()]

    def _look(self) -> Sight:
        queue, state = PromptQueue(), SchedulingState(SchedulingConfig(slack_s=2.0))
        for record in self.records.values():
            if record.status is RunStatus.PENDING:
                queue.add(record, None)
        return Sight(queue, state, self.views, RecoveryView(0, 0, 0, 0, 0, 0), not self.obstructed, 5_000)

    def obstacles(self) -> list[str]:
        return self.obstructed

    def subscribe(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def emit(self, *notices: Notice) -> None:
        for notice in notices:
            for listener in self.listeners:
                listener(notice)

    async def submit(self, request: SubmitRequest) -> SubmitResult:
        if self.failure is not None:
            raise self.failure
        self.requests.append(request)
        if self.refusal is not None:
            return self.refusal
        number = float(len(self.requests) - 1) if request.number is None else request.number
        record = RunRecord(
            prompt_id=request.prompt_id or PromptId(str(uuid.uuid4())),
            tenant=request.tenant,
            number=number,
            prompt=request.prompt,
            extra_data=request.extra_data,
            targets=(),
            client_id=request.client_id,
            created_ms=1_000 + len(self.records),
        )
        self.records[record.prompt_id] = record
        self.emit(QueueChanged(request.tenant, self.remaining(request.tenant)))
        return SubmitResult(record.prompt_id, number, None, {})

    def of(self, tenant: TenantId) -> list[RunRecord]:
        return [record for record in self.records.values() if record.tenant == tenant]

    def in_state(self, *statuses: RunStatus, tenant: TenantId = DEFAULT_TENANT) -> list[RunRecord]:
        return [record for record in self.of(tenant) if record.status in statuses]

    def remaining(self, tenant: TenantId = DEFAULT_TENANT) -> int:
        return len(self.in_state(*ACTIVE, tenant=tenant))

    def running(self, tenant: TenantId = DEFAULT_TENANT) -> list[RunRecord]:
        return self.in_state(RunStatus.RUNNING, tenant=tenant)

    def pending(self, tenant: TenantId = DEFAULT_TENANT, limit: int | None = None) -> list[RunRecord]:
        return self.in_state(RunStatus.PENDING, tenant=tenant)[:limit]

    def ended(self, tenant: TenantId) -> list[RunRecord]:
        return [record for record in self.of(tenant) if record.status not in ACTIVE]

    async def history_count(self, tenant: TenantId = DEFAULT_TENANT) -> int:
        return len(self.ended(tenant))

    async def history(
        self, tenant: TenantId = DEFAULT_TENANT, *, start: int = 0, count: int
    ) -> list[RunRecord]:
        return self.ended(tenant)[start : start + count]

    async def select(self, query: RecordQuery, start: int, count: int | None) -> tuple[list[RunRecord], int]:
        found = [record for record in self.records.values() if query.matches(record)]
        found.sort(key=query.value, reverse=query.is_descending)
        return found[start : None if count is None else start + count], len(found)

    async def settled(self) -> None:
        self.settlings += 1

    async def find(self, prompt_id: PromptId, tenant: TenantId = DEFAULT_TENANT) -> RunRecord | None:
        record = self.records.get(prompt_id)
        return record if record is not None and record.tenant == tenant else None

    def interrupt(self, prompt_id: PromptId | None, tenant: TenantId = DEFAULT_TENANT) -> bool:
        self.interrupted.append(prompt_id)
        return any(prompt_id in (None, record.prompt_id) for record in self.running(tenant))

    def cancel(self, prompt_id: PromptId, tenant: TenantId = DEFAULT_TENANT) -> bool:
        record = self.records.get(prompt_id)
        return record is not None and record.tenant == tenant and record.status in ACTIVE

    def delete_pending(self, prompt_ids: Sequence[PromptId], tenant: TenantId = DEFAULT_TENANT) -> int:
        gone = [record for record in self.pending(tenant) if record.prompt_id in prompt_ids]
        for record in gone:
            del self.records[record.prompt_id]
        return len(gone)

    def clear_pending(self, tenant: TenantId = DEFAULT_TENANT) -> int:
        return self.delete_pending([record.prompt_id for record in self.pending(tenant)], tenant)

    def delete_history(self, prompt_ids: Sequence[PromptId], tenant: TenantId = DEFAULT_TENANT) -> None:
        for record in self.ended(tenant):
            if record.prompt_id in prompt_ids:
                del self.records[record.prompt_id]

    def clear_history(self, tenant: TenantId = DEFAULT_TENANT) -> None:
        self.delete_history([record.prompt_id for record in self.ended(tenant)], tenant)

    def forget_results(self, tenant: TenantId) -> None:
        self.forgotten.append(tenant)

    def busy_tenants(self) -> list[TenantId]:
        return [record.tenant for record in self.records.values() if record.status in ACTIVE]

    def stop_tenant(self, tenant: TenantId) -> None:
        self.clear_pending(tenant)
        self.stopped.append(tenant)

    def usage(self, tenant: TenantId) -> TenantUsage:
        return TenantUsage(
            tenant,
            1.0,
            len(self.pending(tenant)),
            len(self.running(tenant)),
            {"gpu": 0.0},
            {"gpu": 0.0},
            {"gpu": 0.0},
        )

    def free(self, *, unload_models: bool, free_memory: bool) -> None:
        self.freed.append((unload_models, free_memory))

    def recovery(self) -> RecoveryView:
        return RecoveryView(0, 0, 0, 0, 0, 0)

    def workers(self) -> list[WorkerView]:
        return self.views
