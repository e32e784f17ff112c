"""What adapters that multiply a weight do, against the formulas written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.unit.models.lora.test_deltas import merged, rand


def cayley(block: Tensor) -> Tensor:
    skew = block - block.T
    one = torch.eye(len(block))
    return torch.linalg.solve((one - skew).T, (one + skew).T).T


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 3, 3)])
@pytest.mark.parametrize("strength", [1.0, 0.5, -0.7])
def test_oft_rotates_blocks_of_rows_by_the_square_of_the_strength(
    shape: tuple[int, ...], strength: float
) -> None:
    weight, blocks = rand(*shape), rand(2, 3, 3)
    turn = torch.block_diag(*(cayley(block).T for block in blocks))
    turned = (turn @ weight.flatten(1)).reshape(shape)
    got = merged({"oft_blocks": blocks, "rescale": torch.full((6, 1), 9.0)}, weight, strength)
    torch.testing.assert_close(got, weight + strength**2 * (turned - weight), atol=1e-5, rtol=1e-5)
    if strength == 1.0:
        torch.testing.assert_close(got.norm(), weight.norm(), atol=1e-4, rtol=1e-4)


def test_alpha_limits_how_far_oft_rotates() -> None:
    weight, blocks = rand(6, 5), rand(2, 3, 3)
    far = float((blocks - blocks.transpose(1, 2)).norm())
    free = merged({"oft_blocks": blocks}, weight, 1.0)
    assert torch.equal(merged({"oft_blocks": blocks, "alpha": torch.tensor(far * 2)}, weight, 1.0), free)
    assert torch.equal(merged({"oft_blocks": blocks, "alpha": torch.tensor(0.0)}, weight, 1.0), free)
    limited = merged({"oft_blocks": blocks, "alpha": torch.tensor(far / 3)}, weight, 1.0)
    torch.testing.assert_close(limited, merged({"oft_blocks": blocks / 3}, weight, 1.0), atol=1e-5, rtol=1e-5)


def stage(blocks: Tensor, stride: int) -> Tensor:
    """Return a whole matrix: row r of block b is row b // stride * 2 * stride + ... of the weight."""
    size = blocks.shape[0] * blocks.shape[1]
    rows = [
        group * 2 * stride + half * stride + at
        for group in range(size // (2 * stride))
        for at in range(stride)
        for half in range(2)
    ]
    whole = torch.zeros(size, size)
    turned = torch.block_diag(*map(cayley, blocks))
    for i, to in enumerate(rows):
        for j, origin in enumerate(rows):
            whole[to, origin] = turned[i, j]
    return whole


@pytest.mark.parametrize("strength", [1.0, 0.5])
def test_boft_rotates_in_stages_rows_that_lie_ever_farther_apart(strength: float) -> None:
    weight, blocks, rescale = rand(8, 5), rand(2, 2, 4, 4), rand(8, 1)
    whole = torch.eye(8)
    for stride, each in ((2, blocks[0]), (4, blocks[1])):
        whole = (stage(each, stride) * strength + torch.eye(8) * (1 - strength)) @ whole
    got = merged({"oft_blocks": blocks, "rescale": rescale}, weight, strength)
    expected = weight + strength * (rescale * (whole @ weight) - weight)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_glora_adds_the_weight_times_a_product_and_another_product() -> None:
    weight, a1, a2, b1, b2 = rand(6, 5), rand(5, 2), rand(2, 5), rand(6, 2), rand(2, 5)
    factors = {"a1": a1, "a2": a2, "b1": b1, "b2": b2, "alpha": torch.tensor(1.0)}
    expected = weight + 0.3 * (weight @ a1 @ a2 + b1 @ b2) / 2
    torch.testing.assert_close(merged(factors, weight, 0.3), expected)
    old = {"a1": a2, "a2": a1, "b1": b2, "b2": b1, "alpha": torch.tensor(1.0)}
    torch.testing.assert_close(merged(old, weight, 0.3), expected)


def test_glora_of_a_convolution_multiplies_its_input_channels() -> None:
    weight, a1, a2 = rand(6, 5, 3, 3), rand(5, 2, 1, 1), rand(2, 5, 1, 1)
    factors = {"a1": a1, "a2": a2, "b1": torch.zeros(6, 2, 1, 1), "b2": rand(2, 5, 3, 3)}
    x = rand(1, 5, 8, 8)
    got = torch.conv2d(x, merged(factors, weight, 1.0) - weight)
    inputs = torch.einsum("io,bi...->bo...", (a1.flatten(1) @ a2.flatten(1)).T, x)
    torch.testing.assert_close(got, torch.conv2d(inputs, weight), atol=1e-4, rtol=1e-4)
