"""Memory for weights, divided between workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyserverless.control.workers.weights import plan_weights
from comfyserverless.core.config import WorkerConfig
from comfyserverless.core.errors import ConfigError

GIB = 1 << 30


def test_workers_without_a_gpu_share_half_of_the_memory_and_keep_no_second_copy() -> None:
    plan = plan_weights(WorkerConfig(), 16 * GIB, 2)
    assert (plan.device_bytes(False), plan.host_bytes(False)) == (4 * GIB, 0)


def test_workers_with_a_gpu_look_at_it_themselves_and_share_a_quarter_of_host_memory() -> None:
    plan = plan_weights(WorkerConfig(), 16 * GIB, 2, has_gpus=True)
    assert (plan.device_bytes(True), plan.host_bytes(True)) == (0, 2 * GIB)


def test_given_sizes_hold_for_each_worker() -> None:
    config = WorkerConfig(device_bytes=3 * GIB, host_bytes=GIB, resident="models", profiles=Path("/p"))
    plan = plan_weights(config, 16 * GIB, 2)
    assert (plan.device_bytes(False), plan.host_bytes(False)) == (3 * GIB, GIB)
    assert (plan.resident, plan.profiles_path) == ("models", "/p")


def test_more_than_the_machine_has_is_refused() -> None:
    config = WorkerConfig(device_bytes=9 * GIB)
    with pytest.raises(ConfigError, match=r"--device-memory 9216M: 2 workers would need 18432M, .* has 16384M"):
        plan_weights(config, 16 * GIB, 2)
    assert plan_weights(config, 16 * GIB, 2, has_gpus=True).device_bytes(True) == 9 * GIB
