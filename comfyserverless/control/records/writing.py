"""Apply changes of the records to the tables of a database, within the transaction of the caller."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

import msgspec

from comfyserverless.control.records import changes
from comfyserverless.control.records.base import Execute, Opening, Retention, Rows, Unfinished
from comfyserverless.control.records.codec import encode_request, encode_result
from comfyserverless.control.records.reading import COLUMNS, record_of
from comfyserverless.control.records.usage.writing import UsageWriter
from comfyserverless.control.views import RunStatus
from comfyserverless.core.ids import NodeId, PromptId, TenantId

_DAY_MS = 86_400_000
_THIS = "WHERE tenant = ? AND prompt_id = ?"
_DROP_AT_ONCE = 500
_UNFINISHED = f"{_THIS} AND ended_order IS NULL"


class Writer:
    """Write by way of one connection; remembers how much history each tenant has.

    execute: runs a statement on it.
    """

    def __init__(self, execute: Execute, retention: Retention) -> None:
        self._run = execute
        self._retention = retention
        self._usage = UsageWriter(execute)
        (last,) = self._run("SELECT COALESCE(MAX(ended_order), 0) FROM prompts").fetchone()
        self._orders = itertools.count(last + 1)
        #: tenant -> how many ended prompts it has
        self._counts: dict[str, int] = {}
        #: statements of this transaction that add to history (1) or take from it (-1)
        self._counted: list[tuple[TenantId, Rows, int]] = []
        self.recount()
        self._appliers: dict[type, Callable[[Any], None]] = {
            changes.Accepted: self._on_accepted,
            changes.Started: self._on_started,
            changes.Stopped: self._on_stopped,
            changes.Parked: self._on_parked,
            changes.FilesNamed: self._on_files_named,
            changes.Ended: self._on_ended,
            changes.PendingDropped: self._on_pending_dropped,
            changes.HistoryDropped: self._on_history_dropped,
            changes.UsageAdded: self._on_usage_added,
        }

    def apply(self, change: changes.Change) -> None:
        """Carry out one change. What it has changed is not looked at before `settle`: it may be on its way."""
        self._appliers[type(change)](change)

    def settle(self) -> None:
        """Count what the changes have added to history and taken from it, and forget what is too much.

        Called after all changes of a transaction, when their statements have been carried out.
        """
        for tenant, rows, sign in self._counted:
            self._counts[tenant] = self._counts.get(tenant, 0) + sign * rows.rowcount
        grown = {tenant for tenant, _, sign in self._counted if sign > 0}
        self._counted.clear()
        for tenant in sorted(grown):
            surplus = self._counts[tenant] - self._retention.count
            if surplus > 0:
                self._run(
                    "DELETE FROM prompts WHERE key IN (SELECT key FROM prompts WHERE tenant = ?"
                    " AND ended_order IS NOT NULL ORDER BY ended_order LIMIT ?)",
                    (tenant, surplus),
                )
                self._counts[tenant] = self._retention.count

    def recount(self) -> None:
        """Count the history again: after the start, and when a transaction has failed."""
        self._counted.clear()
        rows = self._run("SELECT tenant, COUNT(*) FROM prompts WHERE ended_order IS NOT NULL GROUP BY tenant")
        self._counts = dict(rows.fetchall())

    def take_over(self, now_ms: int) -> Opening:
        """Let what was running wait again, one crash older, and return all that is unfinished."""
        self._run(
            "UPDATE prompts SET status = ?, crashes = crashes + 1 WHERE status = ? AND ended_order IS NULL",
            (RunStatus.PENDING, RunStatus.RUNNING),
        )
        saves = self._saves()
        rows = self._run(
            f"SELECT crashes, is_stopped, {COLUMNS} FROM prompts WHERE ended_order IS NULL ORDER BY key"
        )
        unfinished = []
        for crashes, is_stopped, *row in rows:
            record = record_of(row)
            found = saves.get((record.tenant, record.prompt_id), {})
            unfinished.append(Unfinished(record, crashes, bool(is_stopped), found))
        counters = {TenantId(row[0]): row[1] for row in self._run("SELECT tenant, counter FROM counters")}
        charged_ns, today_ns = self._usage.totals_ns(), self._usage.charged_on_ns(now_ms)
        return Opening(tuple(unfinished), counters, charged_ns, today_ns)

    def tidy(self, now_ms: int) -> None:
        """Forget history and usage that is too old."""
        if self._retention.days:
            oldest_ms = now_ms - round(self._retention.days * _DAY_MS)
            old = self._run("DELETE FROM prompts WHERE ended_order IS NOT NULL AND ended_ms < ?", (oldest_ms,))
            if old.rowcount:
                self.recount()
        if self._retention.usage_days:
            self._usage.tidy(now_ms, self._retention.usage_days)

    def _saves(self) -> dict[tuple[str, str], dict[tuple[NodeId, int], tuple[changes.NamedFile, ...]]]:
        found: dict[tuple[str, str], dict[tuple[NodeId, int], tuple[changes.NamedFile, ...]]] = {}
        for tenant, prompt_id, node, save, text in self._run("SELECT * FROM saves"):
            files = tuple(changes.NamedFile(*each) for each in msgspec.json.decode(text))
            found.setdefault((tenant, prompt_id), {})[NodeId(node), save] = files
        return found

    def _on_accepted(self, change: changes.Accepted) -> None:
        record = change.record
        this = (record.tenant, record.prompt_id)
        self._forget(*this)
        self._run(
            "INSERT INTO prompts (tenant, prompt_id, number, status, client_id, workflow, created_ms, request)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *this,
                record.number,
                RunStatus.PENDING,
                record.client_id,
                record.workflow,
                record.created_ms,
                encode_request(record),
            ),
        )
        self._run(
            "INSERT INTO counters VALUES (?, ?) ON CONFLICT (tenant) DO UPDATE SET counter = excluded.counter",
            (record.tenant, change.counter),
        )

    def _on_started(self, change: changes.Started) -> None:
        self._set(change, "status = ?, started_ms = ?", RunStatus.RUNNING, change.at_ms)

    def _on_stopped(self, change: changes.Stopped) -> None:
        self._set(change, "is_stopped = ?", 1)

    def _on_parked(self, change: changes.Parked) -> None:
        self._set(change, "status = ?", RunStatus.PENDING)

    def _set(
        self, change: changes.Started | changes.Stopped | changes.Parked, columns: str, *values: object
    ) -> None:
        self._run(f"UPDATE prompts SET {columns} {_UNFINISHED}", (*values, change.tenant, change.prompt_id))

    def _on_files_named(self, change: changes.FilesNamed) -> None:
        files = msgspec.json.encode([astuple(file) for file in change.files]).decode()
        save = (change.tenant, change.prompt_id, change.node, change.save)
        self._run(f"DELETE FROM saves {_THIS} AND node = ? AND save = ?", save)
        self._run("INSERT INTO saves VALUES (?, ?, ?, ?, ?)", (*save, files))

    def _on_ended(self, change: changes.Ended) -> None:
        record = change.record
        ended_ms = record.ended_ms or 0
        this = (record.tenant, record.prompt_id)
        ended = self._run(
            "UPDATE prompts SET status = ?, started_ms = ?, ended_ms = ?, duration_ms = ?, ended_order = ?,"
            f" result = ? {_UNFINISHED}",
            (
                record.status,
                record.started_ms,
                ended_ms,
                ended_ms - (record.started_ms or 0),
                next(self._orders),
                encode_result(record),
                *this,
            ),
        )
        self._forget_saves(*this)
        self._counted.append((record.tenant, ended, 1))

    def _on_pending_dropped(self, change: changes.PendingDropped) -> None:
        for start in range(0, len(change.prompt_ids), _DROP_AT_ONCE):
            some = change.prompt_ids[start : start + _DROP_AT_ONCE]
            these = f"WHERE tenant = ? AND prompt_id IN ({', '.join('?' * len(some))})"
            values = (change.tenant, *some)
            self._run(f"DELETE FROM prompts {these} AND ended_order IS NULL", values)
            self._run(f"DELETE FROM saves {these}", values)

    def _on_history_dropped(self, change: changes.HistoryDropped) -> None:
        if change.prompt_ids is None:
            gone = self._run(
                "DELETE FROM prompts WHERE tenant = ? AND ended_order IS NOT NULL", (change.tenant,)
            )
            self._counted.append((change.tenant, gone, -1))
        for prompt_id in change.prompt_ids or ():
            self._forget(change.tenant, prompt_id)

    def _on_usage_added(self, change: changes.UsageAdded) -> None:
        self._usage.add(change.days, change.cells)

    def _forget(self, tenant: TenantId, prompt_id: PromptId) -> None:
        """Forget an ended prompt, if there is one."""
        gone = self._run(f"DELETE FROM prompts {_THIS} AND ended_order IS NOT NULL", (tenant, prompt_id))
        self._counted.append((tenant, gone, -1))

    def _forget_saves(self, tenant: TenantId, prompt_id: PromptId) -> None:
        self._run(f"DELETE FROM saves {_THIS}", (tenant, prompt_id))
