"""Dotted names."""

from __future__ import annotations

import torch

from comfyserverless.host.helpers import attributes as at


def test_values_are_read_and_set_below_modules_and_lists() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    weight = at.get_attr(net, "0.weight")
    assert at.set_attr_param(net, "0.weight", torch.ones(2, 2)) is weight
    assert isinstance(net[0].weight, torch.nn.Parameter)
    assert not net[0].weight.requires_grad
    at.copy_to_param(net, "0.weight", torch.zeros(2, 2))
    assert net[0].weight.sum() == 0
    at.set_attr_buffer(net, "1.running_mean", torch.full((2,), 3.0))
    assert net.state_dict()["1.running_mean"].tolist() == [3.0, 3.0]
    assert at.set_attr(net, "training", False) is True
