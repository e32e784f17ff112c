"""Check the bound and the figures of the measurement of split guidance."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyserverless.bench.guidance.gain import EvaluationParts, Gain, summary
from comfyserverless.bench.workload import Workload

WORKLOAD = Workload(Path("xl.safetensors"), 20, 256, 1)


def test_gain_is_of_the_steps_that_the_machine_left_alone() -> None:
    parts = EvaluationParts(batched_s=0.9, branch_s=0.5)
    gain = Gain(WORKLOAD, parts, (0.96, 7.0), (1.2, 1.3), (0.6, 3.5), identical=True)
    figures = summary(gain)
    assert figures["speedup"] == 1.6
    assert figures["median_speedup"] == pytest.approx(3.98 / 2.05, abs=1e-4)
    assert figures["bound"] == 1.8
    assert figures["of_bound"] == pytest.approx(1.6 / 1.8, abs=1e-4)
    assert figures["batched_vs_split_one_worker"] == 0.8
    assert figures["identical"] is True
    assert figures["measured_steps"] == 2
