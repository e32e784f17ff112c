"""Residuals that are fetched where they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor

from comfyserverless.models.residuals import DeferredSum, defer


class Recording(Sequence[Tensor]):
    """A sequence that notes which items were read."""

    def __init__(self, items: list[Tensor]) -> None:
        self.items = items
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, at: int) -> Tensor: ...
    @overload
    def __getitem__(self, at: slice) -> list[Tensor]: ...
    def __getitem__(self, at: int | slice) -> Tensor | list[Tensor]:
        assert isinstance(at, int)
        self.read.append(at)
        return self.items[at]


def test_adding_reads_nothing_and_concatenating_reads_just_that_item() -> None:
    residuals = Recording([torch.full((1, 2), 10.0), torch.full((1, 2), 20.0)])
    first, second = (torch.ones(1, 2) + deferred for deferred in defer(residuals))
    assert residuals.read == []
    joined = torch.cat([torch.zeros(1, 2), second], dim=1)
    assert residuals.read == [1]
    assert joined.tolist() == [[0.0, 0.0, 21.0, 21.0]]
    assert isinstance(first, DeferredSum)


def test_an_item_is_read_once_however_often_its_sum_is_used() -> None:
    residuals = Recording([torch.ones(1, 2)])
    (deferred,) = (torch.ones(1, 2) + d for d in defer(residuals))
    assert torch.cat([deferred]).tolist() == torch.stack([deferred])[0].tolist() == [[2.0, 2.0]]
    assert residuals.read == [0]


def test_the_shape_of_a_sum_is_known_without_reading() -> None:
    residuals = Recording([torch.ones(1, 2, 3, 4)])
    (deferred,) = (torch.zeros(1, 2, 3, 4) + d for d in defer(residuals))
    assert deferred.shape == (1, 2, 3, 4)
    assert residuals.read == []


def test_a_residual_takes_the_type_of_what_it_is_added_to() -> None:
    (deferred,) = (torch.zeros(1, 2, dtype=torch.float16) + d for d in defer([torch.ones(1, 2)]))
    assert deferred.value().dtype is torch.float16
