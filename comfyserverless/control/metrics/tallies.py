"""Add up what happens often: cheaper than the library's counters, as only the event loop adds.

Reading is safe on any thread; a reader may see a stay that is half added, and sees the rest next time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

Labels = tuple[str, ...]
"""Values of labels, in the order of their names."""


class CounterTally:
    """Count by labels."""

    def __init__(self, name: str, text: str, names: Sequence[str]) -> None:
        self._about = (name, text, tuple(names))
        self._values: dict[Labels, float] = {}

    def add(self, labels: Labels, amount: float = 1.0) -> None:
        """Add something that is not negative."""
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def family(self) -> Metric:
        """Return the sums so far."""
        name, text, names = self._about
        family = CounterMetricFamily(name, text, labels=names)
        for labels, value in list(self._values.items()):
            family.add_metric(labels, value)
        return family


class HistogramTally:
    """Count values by label and bucket. bounds: upper ends of the buckets, ascending, each belonging to it."""

    def __init__(self, name: str, text: str, label: str, bounds: Sequence[float]) -> None:
        self._about = (name, text, label)
        self._bounds = tuple(float(bound) for bound in bounds)
        #: by value of the label: how many values fell into each bucket, the last one having no end; their sum
        self._entries: dict[str, list[float]] = {}

    def observe(self, label: str, value: float) -> None:
        """Add a value."""
        entry = self._entries.get(label)
        if entry is None:
            entry = self._entries[label] = [0.0] * (len(self._bounds) + 2)
        entry[bisect_left(self._bounds, value)] += 1
        entry[-1] += value

    def family(self) -> Metric:
        """Return what was counted so far; buckets count all values up to their end, as Prometheus has it."""
        name, text, label_name = self._about
        family = HistogramMetricFamily(name, text, labels=[label_name])
        for label, entry in list(self._entries.items()):
            *counts, total = entry
            family.add_metric([label], list(self._cumulated(counts)), total)
        return family

    def _cumulated(self, counts: Iterable[float]) -> Iterable[tuple[str, float]]:
        so_far = 0.0
        for end, count in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
            so_far += count
            yield end, so_far
