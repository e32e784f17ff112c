"""Check the bound and the figures of the ControlNet measurement."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyserverless.bench.controlnet import ControlWorkload, Gain, StepParts, summary

PARTS = StepParts(control_net_s=0.4, head_s=0.3, tail_s=0.5)


def workload(nets: int) -> ControlWorkload:
    return ControlWorkload(Path("xl.safetensors"), 20, 256, 1, Path("canny.safetensors"), nets)


def test_serial_step_is_the_sum_of_its_parts() -> None:
    assert [PARTS.serial_s(nets) for nets in (1, 2)] == pytest.approx([1.2, 1.6])


def test_one_net_runs_beside_the_model_until_that_needs_residuals() -> None:
    assert PARTS.overlapped_s(1) == pytest.approx(0.9)


def test_two_nets_share_the_workers_where_that_is_sooner_than_sharing_one() -> None:
    assert PARTS.overlapped_s(2) == pytest.approx(0.4 + 0.8)
    assert StepParts(0.1, 0.3, 0.5).overlapped_s(2) == pytest.approx(0.8), (
        "both are over before they are needed"
    )


def test_gain_is_of_the_steps_that_the_machine_left_alone() -> None:
    gain = Gain(workload(1), PARTS, (1.2, 9.0), (1.0, 7.0), identical=True)
    assert gain.speedup == pytest.approx(1.2)
    assert gain.bound == pytest.approx(1.2 / 0.9)
    figures = summary([gain])
    assert figures["speedup"] == {"1": 1.2}
    assert figures["of_bound"] == {"1": 0.9}
    assert figures["identical"] == {"1": True}


def test_each_control_net_is_applied_to_what_the_one_before_made() -> None:
    graph = workload(2).prompt(7)
    assert graph["13"]["inputs"]["positive"] == ["12", 0]
    assert graph["5"]["inputs"]["positive"] == ["13", 0]
    assert graph["5"]["inputs"]["negative"] == ["13", 1]
    assert graph["5"]["inputs"]["seed"] == 7
    assert workload(1).prompt(7)["5"]["inputs"]["positive"] == ["12", 0]
