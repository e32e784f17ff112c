"""Stack conditionings of different lengths, and fit batches to each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_MAX_REPEATS = 4
"""Conditionings whose lengths differ more than this are not repeated to a common length."""


def can_stack(first: Tensor, other: Tensor) -> bool:
    """Tell whether hidden states may be stacked: equal sides but for lengths that are not too different."""
    one, two = first.shape, other.shape
    if one == two:
        return True
    if one[0] != two[0] or one[2] != two[2]:
        return False
    return math.lcm(one[1], two[1]) // min(one[1], two[1]) <= _MAX_REPEATS


def stack_conds(conds: Sequence[Tensor], batch_size: int) -> Tensor:
    """Stack hidden states [N, T, D] for latents of `batch_size` items: [conds * batch_size, T, D].

    Shorter ones are repeated along T to the least common multiple of all lengths.
    """
    length = math.lcm(*(cond.shape[1] for cond in conds))
    parts = [fit_batch(cond, batch_size) for cond in conds]
    repeated = [c if c.shape[1] == length else c.repeat(1, length // c.shape[1], 1) for c in parts]
    return repeated[0] if len(repeated) == 1 else torch.cat(repeated)


def fit_batch(value: Tensor, batch_size: int) -> Tensor:
    """Repeat or cut a tensor along its first dimension to batch_size items."""
    count = value.shape[0]
    if count == batch_size:
        return value
    if count > batch_size:
        return value[:batch_size]
    return value.repeat(math.ceil(batch_size / count), *[1] * (value.ndim - 1))[:batch_size]
