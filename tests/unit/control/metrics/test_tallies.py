"""Tallies say what the library's own metrics would."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram

from comfyserverless.control.metrics.tallies import CounterTally, HistogramTally

BOUNDS = (0.1, 1, 2.5)
VALUES = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from((0.0, 0.05, 0.1, 0.7, 1.0, 2.0, 2.5, 2.6, 1e9))),
    max_size=20,
)


@given(VALUES)
def test_histogram_has_the_samples_of_the_librarys(values: list[tuple[str, float]]) -> None:
    registry = CollectorRegistry()
    theirs = Histogram("some_seconds", "text", ["function"], registry=registry, buckets=BOUNDS)
    ours = HistogramTally("some_seconds", "text", "function", BOUNDS)
    for label, value in values:
        theirs.labels(label).observe(value)
        ours.observe(label, value)
    (expected,) = theirs.collect()
    wanted = [sample[:3] for sample in expected.samples if not sample.name.endswith("_created")]
    found = [sample[:3] for sample in ours.family().samples]
    assert sorted(found, key=str) == sorted(wanted, key=str)


def test_counter_has_the_samples_of_the_librarys() -> None:
    theirs = Counter("some", "text", ["kind", "end"], registry=CollectorRegistry())
    ours = CounterTally("some", "text", ("kind", "end"))
    for kind, amount in (("a", 1.0), ("b", 2.5), ("a", 0.0)):
        theirs.labels(kind, "done").inc(amount)
        ours.add((kind, "done"), amount)
    (expected,) = theirs.collect()
    wanted = [sample[:3] for sample in expected.samples if not sample.name.endswith("_created")]
    assert [sample[:3] for sample in ours.family().samples] == wanted
