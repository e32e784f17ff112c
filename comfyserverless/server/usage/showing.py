"""Show sums of usage as JSON, as rows of a table, and as what single nodes of a prompt cost. Pure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from comfyserverless.control.metering.amounts import Amounts, summed
from comfyserverless.control.metering.book import Stay
from comfyserverless.control.records.usage.query import Group, UsagePage, UsageQuery, UsageRow
from comfyserverless.core.ids import NodeId, PromptId
from comfyserverless.server.usage.asking import Asked, shown_day

COST_GROUPS = (Group.NODE, Group.WORKER)
_NAMES = {Group.PROMPT: "prompt_id", Group.CLASS: "class_type"}
_FORMULA = re.compile(r"(^|;)(?=[=+\-@\t\r\n＝＋－＠])")
"""Where a spreadsheet takes what follows for a formula: also after a semicolon, which some take for the border
of cells. The last ones are the wide forms of the first."""


def usage_document(asked: Asked, page: UsagePage) -> dict[str, Any]:
    """Return a page of usage, with the sum of all its rows."""
    query, span = asked.query, asked.span()
    return {
        "tenant": "*" if query.tenant is None else query.tenant,
        "group_by": [group.value for group in query.group_by],
        "from": None if query.first_day is None else shown_day(query.first_day),
        "to": None if query.last_day is None else shown_day(query.last_day),
        "of": "prompts" if query.is_of_prompts else "all",
        "rows": [_row(query, row) for row in page.rows],
        "totals": page.total.shown(),
        "pagination": {
            "offset": span.start,
            "limit": span.count,
            "total": page.count,
            "has_more": span.start + span.count < page.count,
        },
    }


def _row(query: UsageQuery, row: UsageRow) -> dict[str, Any]:
    return {**dict(zip(_names(query), _values(query, row), strict=True)), **row.amounts.shown()}


def _names(query: UsageQuery) -> list[str]:
    return [_NAMES.get(group, group.value) for group in query.group_by]


def _values(query: UsageQuery, row: UsageRow) -> Iterator[str]:
    for group, value in zip(query.group_by, row.values, strict=True):
        yield shown_day(value) if group is Group.DAY and isinstance(value, int) else str(value)


def table_head(query: UsageQuery) -> str:
    """Return the first line of a table."""
    return _lines([[*_names(query), *Amounts().shown()]])


def table_rows(query: UsageQuery, rows: Iterable[UsageRow]) -> str:
    """Return lines of a table; no cell is taken for a formula."""
    return _lines(
        [*map(_harmless, _values(query, row)), row.amounts.calls, *map(_seconds, _nanoseconds(row.amounts))]
        for row in rows
    )


def _nanoseconds(amounts: Amounts) -> Iterator[int]:
    yield amounts.charged_ns
    yield from amounts.values()[1:]


def _seconds(ns: int) -> str:
    """Return nanoseconds as seconds, exact, in a form that spreadsheets read."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1_000_000_000}.{ns % 1_000_000_000:09d}"


def _harmless(text: str) -> str:
    return _FORMULA.sub(r"\1'", text)


def _lines(rows: Iterable[Iterable[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()


def prompt_costs(
    prompt_id: PromptId, status: str, rows: Iterable[UsageRow], cached: Collection[NodeId]
) -> dict[str, Any]:
    """Return what each node of a prompt cost. rows: by node and worker; cached: nodes with an older result.

    Nodes without a cost of their own (they only wire models, or repeat an equal node) are left out.
    """
    parts: dict[str, list[UsageRow]] = {str(node): [] for node in cached}
    for row in rows:
        parts.setdefault(str(row.values[0]), []).append(row)
    nodes = {}
    for node, of_node in parts.items():
        cost = summed([row.amounts for row in of_node])
        nodes[node] = {**cost.shown(), "cached": node in cached, "workers": [row.values[1] for row in of_node]}
    total = summed([row.amounts for of_node in parts.values() for row in of_node])
    return {"prompt_id": prompt_id, "status": status, **total.shown(), "nodes": nodes}


def stay_item(stay: Stay) -> dict[str, Any]:
    """Return one stay of an invocation in a lane of a worker."""
    spec = stay.measured.spec
    seconds = stay.amounts.shown()
    del seconds["calls"]
    return {
        "tenant": spec.tenant,
        "prompt_id": stay.prompt_id,
        "node": spec.node,
        "class_type": spec.node_class,
        "function": spec.function,
        "lane": spec.lane,
        "model": stay.model,
        "worker": stay.slot,
        "outcome": stay.measured.outcome,
        "ended_ms": stay.ended_ms,
        **seconds,
        "held_s": stay.measured.held_s,
    }
