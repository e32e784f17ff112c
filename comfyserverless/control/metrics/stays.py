"""Measure what invocations do in the lanes, from what the meter tells of each stay."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram

from comfyserverless.control.metering.measured import Measured
from comfyserverless.control.metrics.labels import TenantLabels, function_label

_QUEUED_S = (0.001, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 600)
_LOAD_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_COMPUTE_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TRANSFER_S = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)


@dataclass(frozen=True, slots=True)
class _OfFunction:
    """What is measured of one function; finding these by their labels costs more than adding to them."""

    queued: Histogram
    load: Histogram
    compute: Histogram
    transfer: Histogram


class StayMetrics:
    """Listen to the meter."""

    def __init__(self, registry: CollectorRegistry, tenants: TenantLabels) -> None:
        self._tenants = tenants
        self._stays = Counter(
            "comfyserverless_invocations",
            "Stays of invocations in a lane that ended, by how they ended",
            ["function", "outcome"],
            registry=registry,
        )
        self._service = Counter(
            "comfyserverless_service_seconds",
            "Seconds of service that tenants were charged for, before weights",
            ["tenant", "lane"],
            registry=registry,
        )

        def histogram(phase: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            name = f"comfyserverless_invocation_{phase}_seconds"
            return Histogram(name, text, ["function"], registry=registry, buckets=buckets)

        self._queued = histogram("queued", "Time with all inputs there, until the lane was free", _QUEUED_S)
        self._load = histogram("load", "Time to make weights ready", _LOAD_S)
        self._compute = histogram("compute", "Time to run the function and store its outputs", _COMPUTE_S)
        self._transfer = histogram("transfer", "Time to fetch inputs from other workers", _TRANSFER_S)
        #: by label of the function: made when it was first measured
        self._functions: dict[str, _OfFunction] = {}
        self._counters: dict[tuple[str, str], Counter] = {}

    def on_measured(self, measured: Measured) -> None:
        """Add one stay; quick, and raises nothing."""
        spec, timing = measured.spec, measured.timing
        function = function_label(spec.function)
        key = (function, measured.outcome)
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = self._stays.labels(*key)
        counter.inc()
        self._service.labels(self._tenants.of(spec.tenant), spec.lane).inc(max(0.0, measured.charged_s))
        if measured.outcome == "lost":
            return  # nobody knows what it did
        phases = self._functions.get(function) or self._begin(function)
        phases.queued.observe(measured.queued_s)
        phases.load.observe(timing.load_s)
        phases.compute.observe(timing.compute_s)
        phases.transfer.observe(timing.transfer_s)

    def _begin(self, function: str) -> _OfFunction:
        found = self._functions[function] = _OfFunction(
            self._queued.labels(function),
            self._load.labels(function),
            self._compute.labels(function),
            self._transfer.labels(function),
        )
        return found
