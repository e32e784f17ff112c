"""The same bench on a virtual clock."""

from __future__ import annotations

from comfyserverless.bench.fairness.results import is_as_promised, summary
from comfyserverless.bench.fairness.simulated import play


def test_simulated_bench_gives_the_same_figures_each_time_and_keeps_the_promise() -> None:
    once, again = (play(("vtime", "fifo"), 0.5, 20.0) for _ in range(2))
    assert summary(once) == summary(again)
    assert summary(once)["simulated"] is True
    assert is_as_promised(once)
