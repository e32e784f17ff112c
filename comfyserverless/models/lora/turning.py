"""Adapters that multiply a weight instead of adding to it: OFT, BOFT and GLoRA.

As in ComfyUI (0.8.0), also where that is odd: the strength of OFT and BOFT counts twice, and OFT's factors of
rows are not looked at. Citations: OFT (Qiu et al. 2023), BOFT (Liu et al. 2023), GLoRA (Chavan et al. 2023).
"""

from __future__ import annotations

import torch
from torch import Tensor

from comfyserverless.models.lora.deltas import Delta, Factors

_LEAST_NORM = 1e-8


class Rotation(Delta):
    """OFT: rotate the rows of each of several blocks among themselves; alpha limits how far."""

    def change(self, weight: Tensor, strength: float) -> Tensor:
        """Return (R^T - 1) W, times strength (see Delta.change)."""
        blocks = _rotations(self.factors)
        count, size, _ = blocks.shape
        turned = (blocks.to(weight) - torch.eye(size).to(weight)) * strength
        rows = weight.reshape(count, size, -1)
        return (turned.transpose(1, 2) @ rows).reshape(weight.shape)

    def rank(self) -> int | None:
        """Return None: alpha is no scale here."""
        return None


class Butterfly(Delta):
    """BOFT: several rotations in a row, each among other rows; alpha limits how far, `rescale` scales rows."""

    def change(self, weight: Tensor, strength: float) -> Tensor:
        """Return B W - W (see Delta.change); each rotation is mixed with none by strength."""
        stages = _rotations(self.factors).to(weight)
        count, size = stages.shape[1:3]
        turned = weight.reshape(weight.shape[0], -1)
        for number, stage in enumerate(stages):
            mixed = stage * strength + (1 - strength) * torch.eye(size).to(weight)
            order = _butterfly(weight.shape[0], 2**number * (size // 2)).to(weight.device)
            rows = mixed @ turned[order].reshape(count, size, -1)
            turned = torch.empty_like(turned).index_copy_(0, order, rows.reshape(turned.shape))
        turned = turned.reshape(weight.shape)
        if "rescale" in self.factors:
            turned = turned * self.factors["rescale"].to(weight)
        return turned - weight

    def rank(self) -> int | None:
        """Return None: alpha is no scale here."""
        return None


class Generalized(Delta):
    """GLoRA: add the weight times one product of low rank, and another product."""

    def change(self, weight: Tensor, strength: float) -> Tensor:
        """Return W A + B (see Delta.change)."""
        a1, a2, b1, b2 = (self.factors[name].flatten(1).to(weight) for name in ("a1", "a2", "b1", "b2"))
        if self._is_old(weight):
            return (b2 @ b1 + weight.flatten(1) @ a2 @ a1).reshape(weight.shape)
        inputs = torch.einsum("oi...,ij->oj...", torch.einsum("oi...,ij->oj...", weight, a1), a2)
        return inputs + (b1 @ b2).reshape(weight.shape)

    def rank(self) -> int | None:
        """Return the inner width."""
        a1 = self.factors["a1"]
        return a1.shape[0] if self._is_old(None) else a1.shape[1]

    def _is_old(self, weight: Tensor | None) -> bool:
        """Tell whether the factors stand in the order of the first version, as far as shapes show it."""
        a1, a2, b1, b2 = (self.factors[name].shape for name in ("a1", "a2", "b1", "b2"))
        is_old = b2[1] == b1[0] == a1[0] == a2[1]
        is_new = b2[0] == b1[1] == a1[1] == a2[0]
        is_square = weight is None or a2[0] == weight.shape[0] == weight.shape[1]
        return is_old and (is_square or not is_new)


def _rotations(factors: Factors) -> Tensor:
    """Return orthogonal matrices [..., n, n]: the Cayley transforms of the blocks' skew parts."""
    blocks = factors["oft_blocks"]
    skew = blocks - blocks.transpose(-1, -2)
    limit = factors["alpha"].item() if "alpha" in factors else 0.0
    norm = torch.linalg.vector_norm(skew) + _LEAST_NORM
    if 0 < limit < norm:
        skew = skew * limit / norm
    one = torch.eye(blocks.shape[-1])
    turned: Tensor = (one + skew) @ torch.linalg.inv(one - skew)
    return turned


def _butterfly(rows: int, stride: int) -> Tensor:
    """Return the order in which rows that lie a stride apart come beside each other: [rows] int64."""
    return torch.arange(rows).reshape(-1, 2, stride).transpose(1, 2).flatten()
