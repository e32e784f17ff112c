"""Keep the accounts of use: what every stay in a lane has used, by day and by prompt, through every restart.

Stays are added up in memory and written about once a second, and when a prompt ends. So a crash of the server
forgets what was used in its last second, and nothing is counted twice. A prompt that runs again after a crash
costs what both tries took. A result that was kept for later prompts and is lost is made again at the expense of
the prompt that made it. A stay belongs to the UTC day on which it ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from comfyserverless.control.metering.amounts import (
    Amounts,
    Cell,
    CellKey,
    DayKey,
    amounts_of,
    day_of,
    seconds_of,
)
from comfyserverless.control.metering.measured import Measured
from comfyserverless.control.metering.models import model_name, shortened
from comfyserverless.control.records.base import Opening
from comfyserverless.control.records.changes import UsageAdded
from comfyserverless.control.records.store import RecordStore
from comfyserverless.control.records.usage.query import UsagePage, UsageQuery, UsageSpan
from comfyserverless.core.ids import NodeId, PromptId, TenantId
from comfyserverless.core.modelfn import HOST_LANES, LANES

WRITE_EVERY_S = 1.0
RECENT_STAYS = 2_000
_LONGEST_NODE = 200
"""Clients may choose longer ids; they are cut."""


@dataclass(frozen=True, slots=True)
class Stay:
    """One stay of an invocation in a lane, as it is remembered for a while. ended_ms: Unix time."""

    prompt_id: PromptId
    model: str
    slot: str
    ended_ms: int
    measured: Measured
    amounts: Amounts


class UsageBook:
    """Own the accounts of use of one server.

    opening: what earlier servers have written; clock_ms: Unix time.
    """

    def __init__(self, store: RecordStore, opening: Opening, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._clock_ms = clock_ms
        self._total_ns = {tenant: dict(lanes) for tenant, lanes in opening.charged_ns.items()}
        #: what was charged on `_day`, which never goes back
        self._today_ns = {tenant: dict(lanes) for tenant, lanes in opening.charged_today_ns.items()}
        self._day = day_of(clock_ms())
        #: what is not written yet, by day and by prompt: the same twice
        self._days: dict[DayKey, Amounts] = {}
        self._cells: dict[CellKey, Cell] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._recent: deque[Stay] = deque(maxlen=RECENT_STAYS)

    def on_stay(self, measured: Measured) -> None:
        """Take note of one stay; called on the event loop."""
        spec, now_ms = measured.spec, self._clock_ms()
        amounts = amounts_of(measured.queued_s, measured.timing, measured.charged_s)
        prompt_id = PromptId(spec.run.rpartition("#")[0] or spec.run)
        node = spec.node if len(spec.node) <= _LONGEST_NODE else NodeId(shortened(spec.node, _LONGEST_NODE))
        slot = measured.worker.partition(".")[0]
        model = model_name(spec.weights)
        key = CellKey(spec.tenant, prompt_id, day_of(now_ms), node, spec.function, model, slot)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = Cell(spec.node_class, spec.lane, Amounts())
        cell.amounts.add(amounts)
        day = DayKey(spec.tenant, key.day, spec.lane, spec.function)
        self._days.setdefault(day, Amounts()).add(amounts)
        self._charge(day, amounts.charged_ns)
        self._recent.append(Stay(prompt_id, model, slot, now_ms, measured, amounts))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_EVERY_S, self.write)

    def _charge(self, day: DayKey, charged_ns: int) -> None:
        self._turn_page(day.day)
        for charges in (self._total_ns, self._today_ns):
            lanes = charges.setdefault(day.tenant, {})
            lanes[day.lane] = lanes.get(day.lane, 0) + charged_ns

    def _turn_page(self, day: int) -> None:
        if day > self._day:
            self._day = day
            self._today_ns.clear()

    def write(self) -> None:
        """Hand what was added up to the store, which writes it soon."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._days:
            self._store.note(UsageAdded(self._days, self._cells))
            self._days, self._cells = {}, {}

    def part(self, tenant: TenantId, prompt_id: PromptId) -> None:
        """Write what a prompt has used before another one gets its id."""
        if any(key.tenant == tenant and key.prompt_id == prompt_id for key in self._cells):
            self.write()

    # -- reading ----------------------------------------------------------------------------------

    def service_s(self, tenant: TenantId) -> dict[str, float]:
        """Return the seconds that a tenant was charged so far, by lane; of all servers on these records."""
        return _seconds(self._total_ns.get(tenant, {}))

    def today_s(self, tenant: TenantId) -> dict[str, float]:
        """Return the seconds that a tenant was charged since the UTC day began, by lane."""
        self._turn_page(day_of(self._clock_ms()))
        return _seconds(self._today_ns.get(tenant, {}))

    async def page(self, query: UsageQuery, span: UsageSpan) -> UsagePage:
        """Add usage up, what happened just now included. Raises CapacityError."""
        self.write()
        return await self._store.read(lambda backend: backend.usage(query, span))

    def recent(self, tenant: TenantId | None, prompt_id: PromptId | None, count: int) -> list[Stay]:
        """Return the last stays that are remembered, newest first; None: of all tenants, or all prompts."""
        found: list[Stay] = []
        for stay in reversed(self._recent):
            if len(found) == count:
                break
            if tenant in (None, stay.measured.spec.tenant) and prompt_id in (None, stay.prompt_id):
                found.append(stay)
        return found


def _seconds(charged_ns: dict[str, int]) -> dict[str, float]:
    shown = (lane for lane in LANES if lane in charged_ns or lane not in HOST_LANES)
    return {lane: seconds_of(charged_ns.get(lane, 0)) for lane in shown}
