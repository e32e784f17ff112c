"""Add usage up in tables, within the transaction of the caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from comfyserverless.control.metering.amounts import AMOUNTS, Amounts, Cell, CellKey, DayKey, day_of
from comfyserverless.core.ids import TenantId

if TYPE_CHECKING:
    from comfyserverless.control.records.base import Execute

_COLUMNS = ", ".join(AMOUNTS)
_MARKS = ", ".join("?" * len(AMOUNTS))
_DAY_MS = 86_400_000
_LONGEST_NODE = 256
"""Clients choose the ids of nodes; what is in an index has a limit in some databases."""


#: nanoseconds by lane, by tenant
Charges = Mapping[TenantId, Mapping[str, int]]


def _added(table: str, *names: str) -> str:
    """Return how columns of a row that is there already take up those of a new one."""
    return "DO UPDATE SET " + ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in names)


_ADD_DAY = (
    f"INSERT INTO usage_days (tenant, day, lane, function, {_COLUMNS}) VALUES (?, ?, ?, ?, {_MARKS})"
    f" ON CONFLICT (tenant, day, lane, function) {_added('usage_days', *AMOUNTS)}"
)
_ADD_TOTAL = (
    "INSERT INTO usage_totals (tenant, lane, charged_ns) VALUES (?, ?, ?)"
    f" ON CONFLICT (tenant, lane) {_added('usage_totals', 'charged_ns')}"
)
_ADD_CELL = (
    f"INSERT INTO usage_prompts (prompt, day, node, function, model, worker, class, lane, {_COLUMNS})"
    f" SELECT key, ?, ?, ?, ?, ?, ?, ?, {_MARKS} FROM prompts WHERE tenant = ? AND prompt_id = ?"
    f" ON CONFLICT (prompt, day, node, function, model, worker) {_added('usage_prompts', *AMOUNTS)}"
)


class UsageWriter:
    """Write usage by way of one connection. execute: runs a statement on it."""

    def __init__(self, execute: Execute) -> None:
        self._run = execute

    def add(self, days: Mapping[DayKey, Amounts], cells: Mapping[CellKey, Cell]) -> None:
        """Add to what is there. Of prompts that are forgotten only the days are kept."""
        totals: dict[tuple[TenantId, str], int] = {}
        for day, amounts in days.items():
            self._run(_ADD_DAY, (*day, *amounts.values()))
            total = day.tenant, day.lane
            totals[total] = totals.get(total, 0) + amounts.charged_ns
        for total, charged_ns in totals.items():
            self._run(_ADD_TOTAL, (*total, charged_ns))
        for key, cell in cells.items():
            of_cell = (
                key.day,
                key.node[:_LONGEST_NODE],
                *key[4:],
                cell.node_class,
                cell.lane,
                *cell.amounts.values(),
            )
            self._run(_ADD_CELL, (*of_cell, key.tenant, key.prompt_id))

    def totals_ns(self) -> Charges:
        """Return what tenants have been charged altogether."""
        return _by_tenant(self._run("SELECT tenant, lane, charged_ns FROM usage_totals").fetchall())

    def charged_on_ns(self, now_ms: int) -> Charges:
        """Return what tenants have been charged on the day of a time."""
        rows = self._run(
            "SELECT tenant, lane, SUM(load_ns + compute_ns + transfer_ns + untimed_ns) FROM usage_days"
            " WHERE day = ? GROUP BY tenant, lane",
            (day_of(now_ms),),
        )
        return _by_tenant(rows.fetchall())

    def tidy(self, now_ms: int, days: float) -> None:
        """Forget days that are too old."""
        self._run("DELETE FROM usage_days WHERE day < ?", (day_of(now_ms - round(days * _DAY_MS)),))


def _by_tenant(rows: list[tuple[str, str, int]]) -> Charges:
    found: dict[TenantId, dict[str, int]] = {}
    for tenant, lane, charged_ns in rows:
        found.setdefault(TenantId(tenant), {})[lane] = int(charged_ns)
    return found
