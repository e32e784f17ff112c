"""Count what becomes of prompts and their nodes, from what the engine tells."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram

from comfyserverless.control.metrics.labels import TenantLabels
from comfyserverless.control.views import (
    NodesCached,
    NodeStarted,
    Notice,
    RunFailed,
    RunInterrupted,
    RunRecord,
    RunStarted,
    RunStatus,
    RunSucceeded,
)
from comfyserverless.core.ids import PromptId, TenantId

_WAIT_S = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
_RUN_S = (0.1, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
_OUTCOMES = {
    RunSucceeded: RunStatus.SUCCESS,
    RunFailed: RunStatus.ERROR,
    RunInterrupted: RunStatus.INTERRUPTED,
}


class PromptMetrics:
    """Listen to the engine's notices. find: returns the record of a prompt that runs."""

    def __init__(
        self,
        registry: CollectorRegistry,
        tenants: TenantLabels,
        find: Callable[[TenantId, PromptId], RunRecord | None],
    ) -> None:
        self._tenants = tenants
        self._find = find
        self._ended = Counter(
            "comfyserverless_prompts",
            "Prompts that ended, by how they ended",
            ["tenant", "outcome"],
            registry=registry,
        )
        self._waited = Histogram(
            "comfyserverless_prompt_wait_seconds",
            "Time from the acceptance of a prompt to its start",
            ["tenant"],
            registry=registry,
            buckets=_WAIT_S,
        )
        self._ran = Histogram(
            "comfyserverless_prompt_run_seconds",
            "Time from the start of a prompt to its end",
            ["outcome"],
            registry=registry,
            buckets=_RUN_S,
        )
        nodes = Counter(
            "comfyserverless_nodes",
            "Nodes of prompts: executed, or answered from the cache of results",
            ["result"],
            registry=registry,
        )
        self._cached = nodes.labels("cached")
        self._executed = nodes.labels("executed")

    def on_notice(self, notice: Notice) -> None:
        """Count one notice; quick, and raises nothing."""
        match notice:
            case NodeStarted(is_again=False):
                self._executed.inc()
            case NodesCached():
                self._cached.inc(len(notice.nodes))
            case RunStarted():
                record = self._find(notice.tenant, notice.run)
                if record is not None:
                    wait_s = max(0, notice.at_ms - record.created_ms) / 1000
                    self._waited.labels(self._tenants.of(notice.tenant)).observe(wait_s)
            case RunSucceeded() | RunFailed() | RunInterrupted():
                self._end(notice)

    def _end(self, notice: RunSucceeded | RunFailed | RunInterrupted) -> None:
        outcome = _OUTCOMES[type(notice)].value
        self._ended.labels(self._tenants.of(notice.tenant), outcome).inc()
        record = self._find(notice.tenant, notice.run)
        if record is not None and record.started_ms is not None:
            self._ran.labels(outcome).observe(max(0, notice.at_ms - record.started_ms) / 1000)
