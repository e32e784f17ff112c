"""Turn what can be looked at into metrics: queue, fairness, workers. Look on the event loop, show anywhere."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from comfyserverless.control.metrics.labels import TenantLabels
from comfyserverless.control.metrics.workers import recovery_families, worker_families
from comfyserverless.control.records.queue import PromptQueue
from comfyserverless.control.views import RecoveryView, WorkerView
from comfyserverless.core.ids import TenantId
from comfyserverless.scheduling.state import SchedulingState

_P = "comfyserverless_"


@dataclass(frozen=True, slots=True)
class Sight:
    """What is looked at. is_ready: prompts can be taken and run; now_ms: Unix time."""

    queue: PromptQueue
    scheduling: SchedulingState
    workers: list[WorkerView]
    recovery: RecoveryView
    is_ready: bool
    now_ms: int


class StateCollector(Collector):
    """Show what was seen at the last look; safe on any thread."""

    def __init__(self, tenants: TenantLabels) -> None:
        self._tenants = tenants
        self._seen: list[Metric] = []

    def look(self, sight: Sight) -> None:
        """Look; on the event loop."""
        ready = GaugeMetricFamily(f"{_P}ready", "1 while prompts can be taken and run", value=sight.is_ready)
        self._seen = [
            ready,
            *self._queue_families(sight.queue, sight.now_ms),
            *_fairness_families(sight.scheduling),
            *worker_families(sight.workers),
            *recovery_families(sight.recovery),
        ]

    def describe(self) -> Iterable[Metric]:
        """Name nothing ahead: what there is depends on what there is to see."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the last look."""
        return self._seen

    def _queue_families(self, queue: PromptQueue, now_ms: int) -> Iterable[Metric]:
        pending: Tally[str] = Tally()
        running: Tally[str] = Tally()
        ages_s: dict[str, float] = {}
        for tenant in queue.tenants():
            label = self._tenants.of(tenant)
            pending[label] += queue.pending_count(tenant)
            running[label] += len(queue.running(tenant))
            ages_s[label] = max(ages_s.get(label, 0.0), _next_age_s(queue, tenant, now_ms))
        return [
            _by_tenant("queue_pending_prompts", "Prompts that wait", pending),
            _by_tenant("running_prompts", "Prompts that run", running),
            _by_tenant("queue_next_age_seconds", "How long the prompt that is next has waited", ages_s),
        ]


def _next_age_s(queue: PromptQueue, tenant: TenantId, now_ms: int) -> float:
    return max((max(0, now_ms - each.created_ms) / 1000 for each in queue.pending(tenant, 1)), default=0.0)


def _by_tenant(name: str, text: str, values: dict[str, int] | dict[str, float]) -> Metric:
    family = GaugeMetricFamily(f"{_P}{name}", text, labels=["tenant"])
    for label, value in values.items():
        family.add_metric([label], value)
    return family


def _fairness_families(state: SchedulingState) -> Iterable[Metric]:
    active = list(state.table.open_runs())
    spread = GaugeMetricFamily(
        f"{_P}vtime_spread_seconds",
        "Largest less smallest vTime of the tenants with prompts in progress",
        labels=["lane"],
    )
    for lane, ledger in state.ledger.lanes.items():
        v_times_s = [ledger.v_time_s(tenant) for tenant in active]
        spread.add_metric([lane], max(v_times_s) - min(v_times_s) if v_times_s else 0.0)
    tenants = GaugeMetricFamily(f"{_P}active_tenants", "Tenants with prompts in progress", value=len(active))
    return [spread, tenants]
