"""Checkpoints on files: the same bits come back, or an error; never half of a result."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from comfyserverless.dataplane.checkpoint import CheckpointError, read_checkpoint, write_checkpoint

LIMIT_BYTES = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "0.checkpoint"
    file.touch()
    return str(file)


def test_a_result_comes_back_with_the_same_bits_shapes_and_types(path: str) -> None:
    tensors = [
        torch.randn(1, 4, 8, 8),
        torch.randn(3, dtype=torch.float64),
        torch.randn(5).to(torch.bfloat16),
        torch.tensor(7),
        torch.tensor([True, False]),
        torch.empty(0, 3),
        torch.tensor([float("nan"), -0.0, float("inf")]),
        torch.randn(4, 6).t(),
    ]
    written_bytes = write_checkpoint(path, {"state": {"tensors": tensors, "step": 3}}, LIMIT_BYTES)
    assert written_bytes == os.path.getsize(path)
    back = read_checkpoint(path)["state"]
    assert back["step"] == 3
    for before, after in zip(tensors, back["tensors"], strict=True):
        assert (after.shape, after.dtype) == (before.shape, before.dtype)
        assert after.contiguous().reshape(-1).view(torch.uint8).tolist() == _bytes(before)


def _bytes(tensor: torch.Tensor) -> list[int]:
    flat: list[int] = tensor.contiguous().reshape(-1).view(torch.uint8).tolist()
    return flat


def test_a_tensor_that_a_result_holds_twice_is_written_once(path: str) -> None:
    noise = torch.randn(1000)
    once = write_checkpoint(path, {"a": noise}, LIMIT_BYTES)
    twice = write_checkpoint(path, {"a": noise, "history": (noise, noise)}, LIMIT_BYTES)
    assert twice < once + 1000
    back = read_checkpoint(path)
    assert torch.equal(back["history"][1], noise)


def test_what_exceeds_the_limit_is_not_written(path: str) -> None:
    assert write_checkpoint(path, {"x": torch.zeros(1000)}, 4000) == 0
    assert os.path.getsize(path) == 0


def test_a_file_that_was_removed_meanwhile_is_not_made_again(path: str) -> None:
    os.unlink(path)
    with pytest.raises(FileNotFoundError):
        write_checkpoint(path, {"x": torch.zeros(4)}, LIMIT_BYTES)
    assert not os.path.exists(path)


@pytest.mark.parametrize("kept_bytes", [0, 4, 30, -1])
def test_an_incomplete_file_is_an_error(path: str, kept_bytes: int) -> None:
    size_bytes = write_checkpoint(path, {"x": torch.zeros(16)}, LIMIT_BYTES)
    os.truncate(path, kept_bytes % size_bytes)
    with pytest.raises(CheckpointError):
        read_checkpoint(path)
