"""Muon: orthogonal updates."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from comfyserverless.training.muon import Muon, orthogonalize


@pytest.mark.parametrize("shape", [(8, 8), (4, 30), (30, 4)])
def test_singular_values_come_near_one_and_vectors_stay(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    result = orthogonalize(matrix)
    values = torch.linalg.svdvals(result)
    assert values.min() > 0.5
    assert values.max() < 1.3
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    assert torch.allclose(u.T @ result @ v.T, torch.diag(torch.diag(u.T @ result @ v.T)), atol=1e-3)


def test_it_minimises_and_leaves_what_has_no_gradient() -> None:
    torch.manual_seed(0)
    target = torch.randn(6, 3, 3, 3) * 0.3
    weight, idle = nn.Parameter(torch.zeros(6, 3, 3, 3)), nn.Parameter(torch.ones(2, 2))
    optimizer = Muon([weight, idle], lr=0.05, weight_decay=0.0)
    for step in range(150):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - step / 150)
        optimizer.zero_grad()
        (weight - target).square().sum().backward()
        optimizer.step()
    assert (weight - target).abs().max() < 0.2
    assert torch.equal(idle, torch.ones(2, 2))


def test_a_closure_is_refused() -> None:
    with pytest.raises(TypeError, match="closure"):
        Muon([nn.Parameter(torch.ones(2, 2))], lr=0.1).step(lambda: None)
