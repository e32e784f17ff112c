from __future__ import annotations

import torch

from comfyserverless.worker import device as devices


def test_cpu_is_chosen_where_there_is_no_cuda_device() -> None:
    assert devices.choose_device("auto", None) == torch.device("cpu")
    assert devices.choose_device("cpu", 3) == torch.device("cpu")


def test_cpu_serves_where_torch_cannot_use_the_device(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices.choose_device("auto", 0) == torch.device("cpu")


def test_default_budget_leaves_half_of_the_host_memory() -> None:
    cpu = torch.device("cpu")
    assert devices.default_weights_bytes(cpu) == devices.describe_device(cpu).total_bytes // 2
