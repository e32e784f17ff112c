"""Ask a database for ended prompts: one, a page of history, or a page of a sorted list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from comfyserverless.control.records.base import Execute, RecordQuery, SortKey
from comfyserverless.control.records.codec import decode_request, decode_result
from comfyserverless.control.records.usage.query import UsagePage, UsageQuery, UsageSpan
from comfyserverless.control.records.usage.reading import UsageReader
from comfyserverless.control.views import RunRecord, RunStatus
from comfyserverless.core.ids import PromptId, TenantId

COLUMNS = (
    "tenant, prompt_id, number, status, client_id, workflow, created_ms, started_ms, ended_ms, request, result"
)
_ENDED = "WHERE tenant = ? AND ended_order IS NOT NULL"
_HISTORY = f"FROM prompts INDEXED BY history {_ENDED}"
_LOAD_AT_ONCE = 500
#: Each holds all columns that a list is selected and sorted by, so that no row is read for those it leaves out.
_BY_WORKFLOW = "history_by_workflow"
_INDEXES = {SortKey.CREATED: "history_by_created", SortKey.DURATION: "history_by_duration"}


def record_of(row: Sequence[Any]) -> RunRecord:
    """Make a record of a row of COLUMNS."""
    tenant, prompt_id, number, status, client_id, workflow, created_ms, started_ms, ended_ms, *packed = row
    request, result = packed
    record = RunRecord(
        prompt_id=PromptId(prompt_id),
        tenant=TenantId(tenant),
        number=number,
        prompt={},
        extra_data={},
        targets=(),
        client_id=client_id,
        created_ms=created_ms,
        status=RunStatus(status),
        started_ms=started_ms,
        ended_ms=ended_ms,
        workflow=workflow,
    )
    decode_request(request, record)
    if result is not None:
        decode_result(result, record)
    return record


class Reader:
    """Ask by way of one connection. execute: runs a statement on it."""

    def __init__(self, execute: Execute) -> None:
        self._run = execute
        self._usage = UsageReader(execute)

    def find(self, tenant: TenantId, prompt_id: PromptId) -> RunRecord | None:
        """Return an ended prompt."""
        row = self._run(
            f"SELECT {COLUMNS} FROM prompts {_ENDED} AND prompt_id = ?", (tenant, prompt_id)
        ).fetchone()
        return None if row is None else record_of(row)

    def history_count(self, tenant: TenantId) -> int:
        """Count the ended prompts of a tenant."""
        return int(self._run(f"SELECT COUNT(*) {_HISTORY}", (tenant,)).fetchone()[0])

    def history(self, tenant: TenantId, start: int, count: int) -> list[RunRecord]:
        """Return ended prompts, oldest end first; whole rows are read of the page only."""
        rows = self._run(
            f"SELECT {COLUMNS} FROM prompts WHERE key IN (SELECT key {_HISTORY} ORDER BY ended_order"
            " LIMIT ? OFFSET ?) ORDER BY ended_order",
            (tenant, count, start),
        )
        return [record_of(row) for row in rows]

    def count(self, query: RecordQuery) -> int:
        """Count the ended prompts of a list."""
        where, values = _where(query)
        return int(self._run(f"SELECT COUNT(*) {where}", values).fetchone()[0])

    def keys(self, query: RecordQuery, start: int, count: int) -> list[tuple[int, int]]:
        """Return (sort value, key) of a page of a list; indexes hold all that is read."""
        where, values = _where(query)
        order = "DESC" if query.is_descending else "ASC"
        rows = self._run(
            f"SELECT {query.sort.value}, key {where} ORDER BY {query.sort.value} {order}, key {order}"
            " LIMIT ? OFFSET ?",
            (*values, count, start),
        )
        return [(value, key) for value, key in rows]

    def load(self, keys: Sequence[int]) -> dict[int, RunRecord]:
        """Return prompts by key."""
        found: dict[int, RunRecord] = {}
        for start in range(0, len(keys), _LOAD_AT_ONCE):
            some = tuple(keys[start : start + _LOAD_AT_ONCE])
            marks = ", ".join("?" * len(some))
            rows = self._run(f"SELECT key, {COLUMNS} FROM prompts WHERE key IN ({marks})", some)
            found.update((key, record_of(row)) for key, *row in rows)
        return found

    def usage(self, query: UsageQuery, span: UsageSpan) -> UsagePage:
        """Add usage up."""
        return self._usage.page(query, span)


def _where(query: RecordQuery) -> tuple[str, tuple[Any, ...]]:
    # with an empty list SQLite sees nothing to look up in an index
    statuses: list[str] = [*sorted(query.statuses)] or [""]
    marks = ", ".join("?" * len(statuses))
    index = _INDEXES[query.sort] if query.workflow is None else _BY_WORKFLOW
    text = f"FROM prompts INDEXED BY {index} {_ENDED} AND status IN ({marks})"
    values: tuple[Any, ...] = (query.tenant, *statuses)
    if query.workflow is None:
        return text, values
    return f"{text} AND workflow = ?", (*values, query.workflow)
