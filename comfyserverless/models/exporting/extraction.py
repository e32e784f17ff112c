"""Make adapter files of weights that are differences: each a product of two thin factors, or as it is.

A factor pair is the truncated singular value decomposition, the best approximation of its rank (Eckart and
Young 1936), with the singular values in the first factor. As in ComfyUI (0.8.0) both are cut at the 0.99
quantile of all their numbers, so a difference is not quite reached at any rank.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from comfyserverless.models.exporting.entries import Entry

_logger = logging.getLogger(__name__)

_STORED = torch.float16
_QUANTILE = 0.99
_SORTABLE = 16_000_000
"""How many numbers torch.quantile takes."""

_WEIGHT, _BIAS = ".weight", ".bias"


@dataclass(frozen=True, slots=True)
class Extraction:
    """How differences become an adapter.

    rank: of factor pairs, None for differences as they are; has_biases: those of biases and norms too; device:
    where decompositions run.
    """

    rank: int | None
    has_biases: bool
    device: torch.device


@dataclass(slots=True)
class _Pair:
    """Both factors of one difference, made together, and kept until each was taken."""

    entry: Entry
    rank: int
    device: torch.device
    name: str
    #: factors that were made and not taken
    kept: dict[str, Tensor] = field(default_factory=dict)

    def take(self, which: str) -> Tensor:
        if which not in self.kept:
            up, down = factor(self.entry.make().reshape(self.entry.shape).to(self.device), self.rank, self.name)
            self.kept = {"up": up.to(_STORED).cpu(), "down": down.to(_STORED).cpu()}
        return self.kept.pop(which)


def adapter_entries(differences: Mapping[str, Entry], how: Extraction) -> dict[str, Entry]:
    """Return the entries of an adapter file; differences: by the names of weights and biases."""
    made: dict[str, Entry] = {}
    for name, entry in differences.items():
        if name.endswith(_WEIGHT):
            layer, is_norm = name.removesuffix(_WEIGHT), len(entry.shape) < 2
            if how.rank is None or (is_norm and how.has_biases):
                made[f"{layer}.diff"] = _halved(entry)
            elif not is_norm:
                made |= _factors(layer, entry, how.rank, how.device)
        elif name.endswith(_BIAS) and how.has_biases:
            made[f"{name.removesuffix(_BIAS)}.diff_b"] = _halved(entry)
    return made


def factor(difference: Tensor, rank: int, name: str = "") -> tuple[Tensor, Tensor]:
    """Return two matrices [out, rank], [rank, in ...] whose product is nearly a difference [out, in ...].

    name: of the weight, for the log: one that has no decomposition is told there and gives zeros.
    """
    matrix = difference.float().flatten(1)
    nothing = matrix.new_zeros(matrix.shape[0], rank), matrix.new_zeros(rank, matrix.shape[1])
    if not matrix.count_nonzero():
        return nothing
    try:
        if not matrix.isfinite().all():
            raise ArithmeticError("it is not finite")
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    except torch.OutOfMemoryError:
        raise
    except (ArithmeticError, RuntimeError) as exc:
        _logger.warning("the difference of %s has no factors, and is left out: %s", name, exc)
        return nothing
    up, down = left[:, :rank] * values[:rank], right[:rank]
    limit = quantile(torch.cat([up.flatten(), down.flatten()]), _QUANTILE)
    return up.clamp(-limit, limit), down.clamp(-limit, limit)


def quantile(numbers: Tensor, share: float) -> float:
    """Return the number below which a share of all lies, interpolated between two; numbers: [N] float32."""
    if numbers.numel() <= _SORTABLE:
        return float(torch.quantile(numbers, share))
    place = share * (numbers.numel() - 1)
    low = math.floor(place)
    below, above = (float(numbers.kthvalue(min(low + each, numbers.numel())).values) for each in (1, 2))
    return below + (above - below) * (place - low)


def _factors(layer: str, entry: Entry, rank: int, device: torch.device) -> dict[str, Entry]:
    out, inner, *kernel = entry.shape
    rank = min(rank, out, inner)
    pair = _Pair(entry, rank, device, layer)
    shapes = {"up": (out, rank, *(1 for _ in kernel)), "down": (rank, inner, *kernel)}
    return {
        f"{layer}.lora_{which}.weight": Entry(_STORED, shape, partial(pair.take, which))
        for which, shape in shapes.items()
    }


def _halved(entry: Entry) -> Entry:
    return Entry(_STORED, entry.shape, lambda: entry.make().to(_STORED))
