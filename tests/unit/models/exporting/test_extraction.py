"""Adapters are made of differences: factors that nearly give them again, or the differences themselves."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from comfyserverless.models.exporting import extraction
from comfyserverless.models.exporting.entries import Entry, constant
from comfyserverless.models.exporting.extraction import Extraction, adapter_entries, factor, quantile
from comfyserverless.models.exporting.writing import write_file

CPU = torch.device("cpu")


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("kernel", [(), (1, 1), (3, 3)])
def test_factors_of_a_low_rank_difference_give_it_again(
    monkeypatch: pytest.MonkeyPatch, kernel: tuple[int, ...]
) -> None:
    monkeypatch.setattr(extraction, "quantile", lambda numbers, share: float("inf"))
    difference = (noise(16, 3) @ noise(3, 10 * (kernel[0] ** 2 if kernel else 1))).reshape(16, 10, *kernel)
    up, down = factor(difference, 3)
    torch.testing.assert_close((up @ down).reshape(difference.shape), difference, rtol=1e-4, atol=1e-4)


def test_factors_are_cut_where_comfyui_cuts_them() -> None:
    """Both factors are cut at the same quantile of all their numbers, so most of a difference stays."""
    difference = 0.01 * noise(40, 30)
    up, down = factor(difference, 30)
    left, values, right = torch.linalg.svd(difference.double(), full_matrices=False)
    whole = torch.cat([(left * values).flatten(), right.flatten()])
    limit = whole.sort().values[round(0.99 * (len(whole) - 1))].item()
    assert down.abs().max().item() == pytest.approx(limit, rel=0.1)
    assert (down.abs() == down.abs().max()).sum() > 1
    lost = (up @ down - difference).norm() / difference.norm()
    assert 0.01 < lost < 0.2, "of normal numbers cutting takes about an eighth"


def test_smaller_rank_keeps_the_largest_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "quantile", lambda numbers, share: float("inf"))
    difference = torch.diag(torch.tensor([5.0, 4.0, 0.1, 0.01]))
    up, down = factor(difference, 2)
    assert up.shape == (4, 2)
    assert ((up @ down) - torch.diag(torch.tensor([5.0, 4.0, 0.0, 0.0]))).abs().max() < 1e-5


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_difference_without_decomposition_is_told_and_changes_nothing(
    number: float, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        up, down = factor(torch.full((3, 2), number), 1, "layer.a")
    assert not up.any()
    assert not down.any()
    assert "the difference of layer.a has no factors" in caplog.text


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_quantile_of_many_numbers_is_that_of_few(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    numbers = noise(count)
    wanted = quantile(numbers, 0.99)
    monkeypatch.setattr(extraction, "_SORTABLE", 0)
    assert quantile(numbers, 0.99) == pytest.approx(wanted, rel=1e-5)


def entries() -> dict[str, Entry]:
    shapes = {"a.weight": (6, 4), "a.bias": (6,), "norm.weight": (6,), "conv.weight": (6, 4, 3, 3), "scale": ()}
    return {name: constant(noise(*shape)) for name, shape in shapes.items()}


A_PAIR = {f"{layer}.lora_{which}.weight" for layer in ("a", "conv") for which in ("up", "down")}


@pytest.mark.parametrize(
    ("rank", "has_biases", "names"),
    [
        (2, True, {*A_PAIR, "a.diff_b", "norm.diff"}),
        (2, False, A_PAIR),
        (None, True, {"a.diff", "a.diff_b", "norm.diff", "conv.diff"}),
        (None, False, {"a.diff", "norm.diff", "conv.diff"}),
    ],
)
def test_file_holds_what_was_asked_for_in_half_precision(
    tmp_path: Path, rank: int | None, has_biases: bool, names: set[str]
) -> None:
    write_file(tmp_path / "a", adapter_entries(entries(), Extraction(rank, has_biases, CPU)), {})
    made = load_file(tmp_path / "a")
    assert made.keys() == names
    assert {tensor.dtype for tensor in made.values()} == {torch.float16}
    if rank is None:
        assert torch.equal(made["conv.diff"], entries()["conv.weight"].make().half())
    else:
        up, down = made["conv.lora_up.weight"], made["conv.lora_down.weight"]
        assert (up.shape, down.shape) == ((6, 2, 1, 1), (2, 4, 3, 3))
        merged = up.flatten(1).float() @ down.flatten(1).float()
        wanted_up, wanted_down = factor(entries()["conv.weight"].make(), 2)
        torch.testing.assert_close(merged, wanted_up @ wanted_down, rtol=0, atol=0.02)


def test_rank_is_no_larger_than_the_sides_of_a_weight() -> None:
    made = adapter_entries(entries(), Extraction(100, False, CPU))
    assert made["a.lora_up.weight"].shape == (6, 4)


def test_each_difference_is_decomposed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named: list[str] = []

    def counting(difference: Tensor, rank: int, name: str) -> tuple[Tensor, Tensor]:
        named.append(name)
        return factor(difference, rank, name)

    monkeypatch.setattr(extraction, "factor", counting)
    write_file(tmp_path / "a", adapter_entries(entries(), Extraction(2, True, CPU)), {})
    assert sorted(named) == ["a", "conv"]
