"""Hold tenants to their limits: what may be sent now, and what may begin.

A tenant that has used up its GPU seconds of the day may send nothing more; what runs goes on, what waits begins
when the day is over or the limit is raised. What is on the GPU now counts when it ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from comfyserverless.control.accounts.account import Limits
from comfyserverless.control.accounts.tenants import Tenants
from comfyserverless.control.metering.amounts import until_next_day_s
from comfyserverless.control.metering.book import UsageBook
from comfyserverless.control.records.queue import PromptQueue
from comfyserverless.control.views import SubmitResult
from comfyserverless.core.ids import TenantId
from comfyserverless.core.modelfn import Lane

log = logging.getLogger(__name__)

_RETRY_AFTER_S = 5
_LOOK_AGAIN_S = 5.0
_DAY_S = 86_400


def counted_lanes(gpus: int, pack_flags: Mapping[str, object]) -> tuple[Lane, ...]:
    """Return the lanes whose service counts as GPU seconds.

    Nodes of packs compute on the GPU by themselves where there is one, unless `--cpu` says that they must not;
    nobody measures when, so all their service counts. Coroutines wait for other machines as a rule: theirs does
    not.
    """
    return ("gpu", "pack") if gpus and not pack_flags.get("cpu") else ("gpu",)


class Admission:
    """Decide by the limits of tenants. clock_ms: Unix time; lanes: whose service counts as GPU seconds."""

    def __init__(
        self,
        tenants: Tenants,
        queue: PromptQueue,
        book: UsageBook,
        clock_ms: Callable[[], int],
        lanes: Sequence[Lane] = ("gpu",),
    ) -> None:
        self.tenants = tenants
        self._lanes = lanes
        self._queue = queue
        self.book = book
        self._clock_ms = clock_ms
        #: all and only tenants whose waiting prompts were held back when they were last looked at
        self._held: set[TenantId] = set()
        self._timer: asyncio.TimerHandle | None = None

    def refusal(self, tenant: TenantId, number: float) -> SubmitResult | None:
        """Return the answer to a prompt that is too many, None if it is not."""
        limits = self.tenants.limits(tenant)
        if limits.max_queued is not None and self._queue.pending_count(tenant) >= limits.max_queued:
            details = f"{limits.max_queued} prompts may wait at once; send this one again later"
            return _refused(number, "queue_full", "Too many prompts are waiting", details, _RETRY_AFTER_S)
        if not self._is_spent(tenant, limits):
            return None
        wait_s = until_next_day_s(self._clock_ms())
        used_s = self._used_s(tenant)
        details = (
            f"{used_s:.1f} of {limits.max_gpu_s_per_day:g} GPU seconds of today are used; they start anew at"
            f" {self._next_day()}, in {wait_s} s"
        )
        return _refused(
            number, "gpu_seconds_used_up", "The GPU seconds of this day are used up", details, wait_s
        )

    def room(self, tenant: TenantId, slots: int, look_again: Callable[[], None]) -> int:
        """Return how many prompts of a tenant may run at once now.

        look_again: called later if prompts are held back for the sake of a limit that may change by itself.
        """
        limits = self.tenants.limits(tenant)
        if self._is_spent(tenant, limits) and self._queue.pending_count(tenant):
            self._hold(tenant, look_again)
            return 0
        self._held.discard(tenant)
        return slots if limits.max_running is None else min(slots, limits.max_running)

    def close(self) -> None:
        """Look at nothing again."""
        if self._timer is not None:
            self._timer.cancel()

    def _is_spent(self, tenant: TenantId, limits: Limits) -> bool:
        limit_s = limits.max_gpu_s_per_day
        return limit_s is not None and self._used_s(tenant) >= limit_s

    def _used_s(self, tenant: TenantId) -> float:
        today_s = self.book.today_s(tenant)
        return sum(today_s.get(lane, 0.0) for lane in self._lanes)

    def _hold(self, tenant: TenantId, look_again: Callable[[], None]) -> None:
        if tenant not in self._held:
            self._held.add(tenant)
            log.info(
                "Tenant %s has used up its GPU seconds of this day: what waits begins at %s",
                tenant,
                self._next_day(),
            )
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._look, look_again)

    def _look(self, look_again: Callable[[], None]) -> None:
        self._timer = None
        look_again()

    def _next_day(self) -> str:
        next_s = (self._clock_ms() // 1000 // _DAY_S + 1) * _DAY_S
        return time.strftime("%Y-%m-%d 00:00 UTC", time.gmtime(next_s))


def _refused(number: float, kind: str, message: str, details: str, retry_after_s: int) -> SubmitResult:
    error: dict[str, Any] = {"type": kind, "message": message, "details": details, "extra_info": {}}
    return SubmitResult(None, number, error, {}, retry_after_s=retry_after_s)
