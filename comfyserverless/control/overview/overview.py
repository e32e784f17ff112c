"""Watch the scheduling state and the meter, and answer what has happened since somebody looked last."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from comfyserverless.control.metering.measured import Measured, Meter
from comfyserverless.control.overview.shares import Sample, ShareHistory
from comfyserverless.control.overview.timeline import Stretch, Timeline
from comfyserverless.core.ids import NodeId, PromptId, TenantId, WorkerId
from comfyserverless.core.modelfn import Lane
from comfyserverless.scheduling.state import SchedulingState

SAMPLE_S = 2.0
"""Seconds between two samples of the shares."""

_SHARED_LANE: Lane = "gpu"


@dataclass(frozen=True, slots=True)
class Staying:
    """An invocation that is in a lane now. Times are monotonic seconds; run as in `StretchKey`."""

    worker: WorkerId
    lane: Lane
    tenant: TenantId
    run: PromptId
    node: NodeId
    function: str
    began_s: float


@dataclass(frozen=True, slots=True)
class Recent:
    """What is new since a cursor. is_full: it is all there is, what was shown before is void.

    unix_s: what to add to a time of it to have Unix seconds.
    """

    cursor: str
    is_full: bool
    now_s: float
    unix_s: float
    samples: list[Sample]
    stretches: list[Stretch]
    staying: list[Staying]


class Overview:
    """Remember the last minutes of one server. state is looked at only; clock: the dispatcher's."""

    def __init__(
        self, state: SchedulingState, meter: Meter, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._state = state
        self._clock = clock
        self._unix_s = time.time() - clock()
        self._shares = ShareHistory(clock())
        self._timeline = Timeline()
        #: tells cursors of this server from those of an earlier one.
        self._mark = secrets.token_hex(4)
        meter.listen(self._on_measured)

    async def watch(self) -> None:
        """Take samples until cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            self.sample()

    def sample(self) -> None:
        """Take one sample of the shares."""
        now_s = self._clock()
        staying = [(each.tenant, each.began_s) for each in self.staying() if each.lane == _SHARED_LANE]
        lanes = sum(worker.slots.get(_SHARED_LANE, 0) for worker in self._state.pool.workers.values())
        busy = {tenant for tenant, _ in staying} | set(self._state.table.open_runs())
        self._shares.take(now_s, staying, lanes, {tenant: self.ahead_s(tenant) for tenant in sorted(busy)})
        self._timeline.forget_old(now_s)

    def v_time_s(self, tenant: TenantId) -> float:
        """Return a tenant's vTime in the GPU lanes: seconds of service over its weight."""
        return self._state.ledger.lanes[_SHARED_LANE].v_time_s(tenant)

    def ahead_s(self, tenant: TenantId) -> float:
        """Return a tenant's vTime less the virtual time of the GPU lanes; negative: it is owed service."""
        return self.v_time_s(tenant) - self._state.ledger.lanes[_SHARED_LANE].floor_s

    def staying(self) -> list[Staying]:
        """List what is in a lane now."""
        return [
            Staying(
                worker.id,
                lane,
                record.spec.tenant,
                record.spec.run,
                record.spec.node,
                record.spec.function,
                record.lease.started_at_s,
            )
            for worker in self._state.pool.workers.values()
            for lane, running in worker.running.items()
            for record in running.values()
            if record.lease is not None
        ]

    def since(self, cursor: str) -> Recent:
        """Return what is new since an answer's cursor; all there is if it is not one of this server."""
        sample, change = self._parse(cursor) or (0, 0)
        return Recent(
            cursor=f"{self._mark}.{self._shares.count}.{self._timeline.changes}",
            is_full=not (sample or change),
            now_s=self._clock(),
            unix_s=self._unix_s,
            samples=self._shares.since(sample),
            stretches=self._timeline.since(change),
            staying=self.staying(),
        )

    def _parse(self, cursor: str) -> tuple[int, int] | None:
        mark, _, numbers = cursor.partition(".")
        sample, _, change = numbers.partition(".")
        is_ours = mark == self._mark and sample.isdecimal() and change.isdecimal()
        return (int(sample[:18]), int(change[:18])) if is_ours else None

    def _on_measured(self, measured: Measured) -> None:
        self._timeline.add(measured)
        if measured.spec.lane == _SHARED_LANE:
            began_s = measured.ended_s - measured.held_s
            self._shares.end_stay(measured.spec.tenant, began_s, measured.ended_s)
