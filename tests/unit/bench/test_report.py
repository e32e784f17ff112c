"""Check the figures of the overhead measurement."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyserverless.bench.overhead import Comparison
from comfyserverless.bench.report import summary
from comfyserverless.bench.workload import Workload

WORKLOAD = Workload(Path("demo.safetensors"), steps=13, size_px=128, threads=1)  # 20 invocations


def test_ratio_is_the_median_of_the_rounds_and_ignores_a_slow_phase_of_the_machine() -> None:
    result = Comparison(WORKLOAD, (1.1, 2.2, 1.1), (1.0, 2.0, 1.0), 0)
    assert result.ratio == pytest.approx(1.1)


def test_extra_time_is_shared_by_all_invocations() -> None:
    result = Comparison(WORKLOAD, (1.2,), (1.0,), 0)
    assert result.us_per_invocation == pytest.approx(10_000)


def test_summary_names_the_measurement_and_what_was_measured() -> None:
    figures = summary(Comparison(WORKLOAD, (1.2, 1.0), (1.0, 1.0), 1))
    assert figures["bench"] == "overhead"
    assert figures["ratio"] == 1.1
    assert (figures["steps"], figures["size_px"], figures["rounds"]) == (13, 128, 2)


def test_previews_are_compared_with_the_same_server_without_them() -> None:
    result = Comparison(WORKLOAD, (1.0, 2.0, 1.0), (0.5, 1.0, 0.5), 0, (1.1, 2.2, 1.5), 12)
    assert result.preview_ratio == pytest.approx(1.1)
    figures = summary(result)
    assert (figures["preview_ratio"], figures["previews"], figures["ratio"]) == (1.1, 12, 2.0)
    assert "preview_ratio" not in summary(Comparison(WORKLOAD, (1.0,), (1.0,), 0))


def test_workload_asks_for_its_steps_and_seed() -> None:
    sampler = WORKLOAD.prompt(5)["5"]["inputs"]
    assert (sampler["steps"], sampler["seed"]) == (13, 5)
