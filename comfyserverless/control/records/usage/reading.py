"""Add usage up by whatever is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comfyserverless.control.metering.amounts import AMOUNTS, Amounts
from comfyserverless.control.records.usage.query import Group, UsagePage, UsageQuery, UsageRow, UsageSpan

if TYPE_CHECKING:
    from comfyserverless.control.records.base import Execute

_DAYS = "usage_days u"
_PROMPTS = "prompts p JOIN usage_prompts u ON u.prompt = p.key"
_SUMS = ", ".join(f"SUM(u.{name})" for name in AMOUNTS)
_TOTALS = ", ".join(f"SUM(SUM(u.{name})) OVER ()" for name in AMOUNTS)
_WIDTH = len(AMOUNTS)


class UsageReader:
    """Read usage by way of one connection. execute: runs a statement on it."""

    def __init__(self, execute: Execute) -> None:
        self._run = execute

    def page(self, query: UsageQuery, span: UsageSpan) -> UsagePage:
        """Return rows in the order of their groups; one statement, so that rows and total agree.

        With `span.after` the count and the total are those of the rows after it.
        """
        rows = self._select(query, span)
        parts = [_taken_apart(row, query) for row in rows or self._select(query, UsageSpan(0, 1, span.after))]
        if not parts:
            return UsagePage([], 0, Amounts())
        return UsagePage([row for row, _, _ in parts] if rows else [], parts[0][1], parts[0][2])

    def _select(self, query: UsageQuery, span: UsageSpan) -> list[Any]:
        """Run the statement: keys, names of prompts, sums, number of rows, sums of all."""
        keys = [_column(group, query) for group in query.group_by]
        where, values = _where(query)
        if span.after is not None:
            sign = "<" if query.is_descending else ">"
            where.append(f"({', '.join(keys)}) {sign} ({', '.join('?' * len(keys))})")
            values += span.after
        source = _PROMPTS if query.is_of_prompts else _DAYS
        names = ["MIN(p.prompt_id)"] if Group.PROMPT in query.group_by else []
        order = ", ".join(f"{key} DESC" if query.is_descending else key for key in keys)
        sql = (
            f"SELECT {', '.join([*keys, *names])}, {_SUMS}, COUNT(*) OVER (), {_TOTALS} FROM {source}"
            f"{' WHERE ' if where else ''}{' AND '.join(where)} GROUP BY {', '.join(keys)}"
            f" ORDER BY {order} LIMIT ? OFFSET ?"
        )
        return self._run(sql, (*values, span.count, span.start)).fetchall()


def _column(group: Group, query: UsageQuery) -> str:
    if group is Group.PROMPT:
        return "p.key"  # in order of arrival; ids have none
    if group is Group.TENANT and query.is_of_prompts:
        return "p.tenant"
    return f"u.{group.value}"


def _where(query: UsageQuery) -> tuple[list[str], list[str | int]]:
    tenant = _column(Group.TENANT, query)
    wanted: list[tuple[str, str | int | None]] = [
        (f"{tenant} = ?", query.tenant),
        ("p.prompt_id = ?", query.prompt_id),
        ("u.day >= ?", query.first_day),
        ("u.day <= ?", query.last_day),
    ]
    return (
        [condition for condition, value in wanted if value is not None],
        [value for _, value in wanted if value is not None],
    )


def _taken_apart(row: Any, query: UsageQuery) -> tuple[UsageRow, int, Amounts]:
    """Split a row of the statement: the row for the caller, the number of rows, the sum of all."""
    width = len(query.group_by)
    has_name = Group.PROMPT in query.group_by
    key = tuple(row[:width])
    values = tuple(
        row[width] if group is Group.PROMPT else value for group, value in zip(query.group_by, key, strict=True)
    )
    numbers = [int(number) for number in row[width + has_name :]]
    return (
        UsageRow(key, values, Amounts(*numbers[:_WIDTH])),
        numbers[_WIDTH],
        Amounts(*numbers[_WIDTH + 1 :]),
    )
