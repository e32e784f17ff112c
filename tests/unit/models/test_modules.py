"""Building modules without their numbers."""

from __future__ import annotations

from torch import nn

from comfyserverless.models.modules import empty_module


def test_an_empty_module_has_shapes_and_no_memory() -> None:
    module = empty_module(lambda: nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)))
    assert {name: tuple(p.shape) for name, p in module.named_parameters()}["0.weight"] == (3, 2)
    assert all(parameter.is_meta for parameter in module.parameters())
    assert not module.training
    assert not any(parameter.requires_grad for parameter in module.parameters())
