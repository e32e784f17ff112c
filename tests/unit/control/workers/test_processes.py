"""How many workers there are, and what each gets."""

from __future__ import annotations

import pytest

from comfyserverless.control.workers.processes import plan_slots
from comfyserverless.core.config import WorkerConfig


@pytest.mark.parametrize(
    ("config", "gpus", "cores", "devices", "threads"),
    [
        (WorkerConfig(), 0, 2, [None], 1),
        (WorkerConfig(), 0, 9, [None], 8),
        (WorkerConfig(workers=2), 0, 9, [None, None], 4),
        (WorkerConfig(workers=4), 0, 2, [None] * 4, 1),
        (WorkerConfig(), 3, 16, [0, 1, 2], 5),
        (WorkerConfig(workers=4), 2, 16, [0, 1, 0, 1], 3),
        (WorkerConfig(threads=6), 0, 2, [None], 6),
    ],
)
def test_workers_share_devices_and_cores(
    config: WorkerConfig, gpus: int, cores: int, devices: list[int | None], threads: int
) -> None:
    slots, each = plan_slots(config, gpus, cores)
    assert [slot.device_index for slot in slots] == devices
    assert [slot.name for slot in slots] == [f"w{index}" for index in range(len(devices))]
    assert each == threads
