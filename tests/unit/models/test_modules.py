"""Building modules around tensors, and sharing them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.modules import build_module, share_module


def make() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))


def test_a_built_module_uses_the_given_memory() -> None:
    tensors = {name: torch.ones_like(t) for name, t in make().state_dict().items()}
    module = build_module(make, tensors, "a.safetensors")
    assert module[0].weight.data_ptr() == tensors["0.weight"].data_ptr()
    assert not module.training
    assert not any(p.requires_grad for p in module.parameters())


def test_missing_tensors_are_named_with_their_file() -> None:
    with pytest.raises(
        ModelFileError, match=r"a\.safetensors: lacks 2 tensors of Sequential: 1\.weight, 1\.bias"
    ):
        build_module(make, {"0.weight": torch.ones(3, 2), "0.bias": torch.ones(3)}, "a.safetensors")


def test_tensors_of_another_shape_are_refused() -> None:
    tensors = make().state_dict() | {"0.weight": torch.ones(5, 5)}
    with pytest.raises(ModelFileError, match=r"a\.safetensors: tensors do not fit Sequential"):
        build_module(make, tensors, "a.safetensors")


def test_a_shared_module_differs_only_where_it_was_replaced() -> None:
    base = make()
    twin = share_module(base, {"1.bias": torch.full((1,), 9.0)})
    assert twin[0].weight is base[0].weight
    assert twin[1].weight is base[1].weight
    x = torch.ones(1, 2)
    assert torch.allclose(twin(x), base(x) - base[1].bias + 9.0)
    assert base[1].bias.item() != 9.0
