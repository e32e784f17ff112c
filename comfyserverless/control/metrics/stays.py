"""Measure what invocations do in the lanes, from what the meter tells of each stay."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from comfyserverless.control.metering.measured import Measured
from comfyserverless.control.metrics.labels import TenantLabels, function_label
from comfyserverless.control.metrics.tallies import CounterTally, HistogramTally

_QUEUED_S = (0.001, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 600)
_LOAD_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_COMPUTE_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TRANSFER_S = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)


class StayMetrics(Collector):
    """Listen to the meter."""

    def __init__(self, tenants: TenantLabels) -> None:
        self._tenants = tenants
        self._stays = CounterTally(
            "comfyserverless_invocations",
            "Stays of invocations in a lane that ended, by how they ended",
            ("function", "outcome"),
        )
        self._service = CounterTally(
            "comfyserverless_service_seconds",
            "Seconds of service that tenants were charged for, before weights",
            ("tenant", "lane"),
        )
        self._queued = _of_phase("queued", "Time with all inputs there, until the lane was free", _QUEUED_S)
        self._load = _of_phase("load", "Time to make weights ready", _LOAD_S)
        self._compute = _of_phase("compute", "Time to run the function and store its outputs", _COMPUTE_S)
        self._transfer = _of_phase("transfer", "Time to fetch inputs from other workers", _TRANSFER_S)

    def on_measured(self, measured: Measured) -> None:
        """Add one stay; quick, and raises nothing."""
        spec, timing = measured.spec, measured.timing
        function = function_label(spec.function)
        self._stays.add((function, measured.outcome))
        self._service.add((self._tenants.of(spec.tenant), spec.lane), max(0.0, measured.charged_s))
        if measured.outcome == "lost":
            return  # nobody knows what it did
        self._queued.observe(function, measured.queued_s)
        self._load.observe(function, timing.load_s)
        self._compute.observe(function, timing.compute_s)
        self._transfer.observe(function, timing.transfer_s)

    def describe(self) -> Iterable[Metric]:
        """Name nothing ahead: what there is depends on what ran."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return what was measured so far."""
        tallies = (self._stays, self._service, self._queued, self._load, self._compute, self._transfer)
        return [tally.family() for tally in tallies]


def _of_phase(phase: str, text: str, bounds: tuple[float, ...]) -> HistogramTally:
    return HistogramTally(f"comfyserverless_invocation_{phase}_seconds", text, "function", bounds)
