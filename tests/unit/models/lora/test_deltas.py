"""What adapters do to a weight, against the formulas written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from comfyserverless.models.lora.deltas import Kronecker
from comfyserverless.models.lora.kinds import make_delta


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def merged(factors: dict[str, Tensor], weight: Tensor, strength: float) -> Tensor:
    delta = make_delta(factors)
    assert delta is not None
    return delta.merge(weight, strength)


@pytest.mark.parametrize("strength", [1.0, 0.5, -0.7])
def test_lora_adds_the_scaled_product(strength: float) -> None:
    weight, up, down = rand(6, 5), rand(6, 2), rand(2, 5)
    got = merged({"up": up, "down": down, "alpha": torch.tensor(4.0)}, weight, strength)
    assert torch.allclose(got, weight + strength * (4.0 / 2) * up @ down, atol=1e-6)


def test_lora_without_alpha_is_not_scaled() -> None:
    weight, up, down = rand(6, 5), rand(6, 2), rand(2, 5)
    assert torch.allclose(merged({"up": up, "down": down}, weight, 1.0), weight + up @ down, atol=1e-6)


def test_the_weight_that_is_merged_into_is_unchanged() -> None:
    weight = rand(6, 5)
    before = weight.clone()
    merged({"up": rand(6, 2), "down": rand(2, 5)}, weight, 1.0)
    assert torch.equal(weight, before)


def test_lora_of_a_convolution_equals_the_two_convolutions_in_a_row() -> None:
    weight, up, down = rand(6, 5, 3, 3), rand(6, 2, 1, 1), rand(2, 5, 3, 3)
    x = rand(1, 5, 8, 8)
    got = torch.conv2d(x, merged({"up": up, "down": down}, weight, 1.0))
    assert torch.allclose(got, torch.conv2d(x, weight) + torch.conv2d(torch.conv2d(x, down), up), atol=1e-4)


def test_a_middle_factor_is_the_third_convolution_in_the_row() -> None:
    weight, up, mid, down = rand(6, 5, 3, 3), rand(6, 2, 1, 1), rand(2, 3, 3, 3), rand(3, 5, 1, 1)
    x = rand(1, 5, 8, 8)
    got = torch.conv2d(x, merged({"up": up, "mid": mid, "down": down}, weight, 1.0)) - torch.conv2d(x, weight)
    row = torch.conv2d(torch.conv2d(torch.conv2d(x, down), mid), up)
    assert torch.allclose(got, row, atol=1e-4)


def test_loha_multiplies_two_products() -> None:
    factors = {
        "hada_w1_a": rand(6, 2),
        "hada_w1_b": rand(2, 5),
        "hada_w2_a": rand(6, 3),
        "hada_w2_b": rand(3, 5),
    }
    product = (factors["hada_w1_a"] @ factors["hada_w1_b"]) * (factors["hada_w2_a"] @ factors["hada_w2_b"])
    got = merged(factors | {"alpha": torch.tensor(1.0)}, torch.zeros(6, 5), 1.0)
    assert torch.allclose(got, product / 2, atol=1e-6)


def test_lokr_is_a_kronecker_product_of_whole_or_split_factors() -> None:
    whole = merged({"lokr_w1": rand(2, 2), "lokr_w2": rand(3, 4)}, torch.zeros(6, 8), 1.0)
    assert torch.allclose(whole, torch.kron(rand(2, 2), rand(3, 4)))
    split = {
        "lokr_w1": rand(2, 2),
        "lokr_w2_a": rand(3, 2),
        "lokr_w2_b": rand(2, 4),
        "alpha": torch.tensor(1.0),
    }
    expected = torch.kron(rand(2, 2), rand(3, 2) @ rand(2, 4)) / 2
    assert torch.allclose(merged(split, torch.zeros(6, 8), 1.0), expected, atol=1e-6)
    assert Kronecker({"lokr_w1": rand(2, 2), "lokr_w2": rand(3, 4)}).rank() is None


def test_a_plain_difference_is_added() -> None:
    assert torch.equal(merged({"diff": torch.ones(3)}, torch.zeros(3), 0.5), torch.full((3,), 0.5))


@pytest.mark.parametrize("shape", [(1, 5), (6, 1)], ids=["columns", "rows"])
def test_dora_sets_the_length_of_rows_or_columns(shape: tuple[int, int]) -> None:
    weight, up, down = rand(6, 5), rand(6, 2) * 1e-6, rand(2, 5)
    got = merged({"up": up, "down": down, "dora_scale": torch.full(shape, 3.0)}, weight, 1.0)
    dim = 0 if shape == (1, 5) else 1
    assert torch.allclose(got.norm(dim=dim), torch.tensor(3.0), atol=1e-4)
    half = merged({"up": up, "down": down, "dora_scale": torch.full(shape, 3.0)}, weight, 0.5)
    assert torch.allclose(half, (weight + got) / 2, atol=1e-5)


def test_incomplete_factors_make_no_adapter() -> None:
    assert make_delta({"up": rand(6, 2)}) is None
    assert make_delta({"alpha": torch.tensor(1.0)}) is None
