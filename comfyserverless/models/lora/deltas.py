"""Compute what an adapter adds to one weight: LoRA, LoHa, LoKr, plain differences, with or without DoRA.

Everything is computed in float32 from upcast factors. `change` is the difference at strength 1; `merge`
applies it. Citations: LoRA (Hu et al. 2021), LoHa and LoKr (Yeh et al. 2023), DoRA (Liu et al. 2024).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Factors = Mapping[str, Tensor]
"""The tensors of one adapted layer, by their role in the file (`up`, `hada_w1_a`, `alpha` ...), float32."""


@dataclass(frozen=True, slots=True)
class Delta(ABC):
    """The adapter of one weight."""

    factors: Factors

    @abstractmethod
    def change(self, weight: Tensor, strength: float) -> Tensor:
        """Return the unscaled difference to a float32 weight, in its shape.

        strength: for kinds whose difference is no multiple of it. Raises RuntimeError, LookupError,
        ArithmeticError or ValueError if the factors do not fit the weight.
        """

    @abstractmethod
    def rank(self) -> int | None:
        """Return the rank that alpha is divided by, None if the adapter has none."""

    def merge(self, weight: Tensor, strength: float) -> Tensor:
        """Return a float32 weight with the adapter added; `weight` is unchanged.

        Raises what `change` raises if the adapter's factors do not fit the weight's shape.
        """
        alpha, rank = self.factors.get("alpha"), self.rank()
        scale = 1.0 if alpha is None or rank is None else alpha.item() / rank
        change = self.change(weight, strength).to(weight.device)
        if "dora_scale" in self.factors:
            return _merge_decomposed(weight, change * scale, self.factors["dora_scale"].to(weight), strength)
        return weight + (strength * scale) * change


class LowRank(Delta):
    """LoRA, also of convolutions (LoCon), with an optional middle factor (Tucker decomposition)."""

    def change(self, weight: Tensor, strength: float) -> Tensor:
        """Return up @ down (see Delta.change)."""
        up, down = self.factors["up"], self.factors["down"]
        if "mid" in self.factors:
            mid = self.factors["mid"]
            wide = [down.shape[1], mid.shape[0], *mid.shape[2:]]
            down = (
                (down.transpose(0, 1).flatten(1) @ mid.transpose(0, 1).flatten(1)).reshape(wide).transpose(0, 1)
            )
        left, right = up.flatten(1), down.flatten(1)
        require_size(left.shape[0] * right.shape[1], weight.shape)
        return (left @ right).reshape(weight.shape)

    def rank(self) -> int | None:
        """Return the inner width."""
        return self.factors["down"].shape[0]


class Hadamard(Delta):
    """LoHa: the elementwise product of two low-rank matrices."""

    def change(self, weight: Tensor, strength: float) -> Tensor:
        """Return (w1_a @ w1_b) * (w2_a @ w2_b) (see Delta.change)."""
        if not any(name in self.factors for name in ("hada_t1", "hada_t2")):
            count = self.factors["hada_w1_a"].shape[0] * self.factors["hada_w1_b"].shape[1]
            require_size(count, weight.shape)
        return (self._product("1") * self._product("2")).reshape(weight.shape)

    def rank(self) -> int | None:
        """Return the inner width."""
        return self.factors["hada_w1_b"].shape[0]

    def _product(self, which: str) -> Tensor:
        a, b = self.factors[f"hada_w{which}_a"], self.factors[f"hada_w{which}_b"]
        if (core := self.factors.get(f"hada_t{which}")) is not None:
            return torch.einsum("i j k l, j r, i p -> p r k l", core, b, a)
        return a @ b


class Kronecker(Delta):
    """LoKr: the Kronecker product of two matrices, each whole or of low rank."""

    def change(self, weight: Tensor, strength: float) -> Tensor:
        """Return w1 (x) w2 (see Delta.change)."""
        left, right = self._factor("1"), self._factor("2")
        if right.ndim == 4:
            left = left.unsqueeze(2).unsqueeze(2)
        require_size(left.numel() * right.numel(), weight.shape)
        return torch.kron(left, right).reshape(weight.shape)

    def rank(self) -> int | None:
        """Return the inner width of the last factor that has one."""
        split = [self.factors[name].shape[0] for name in ("lokr_w1_b", "lokr_w2_b") if name in self.factors]
        return split[-1] if split else None

    def _factor(self, which: str) -> Tensor:
        if (whole := self.factors.get(f"lokr_w{which}")) is not None:
            return whole
        a, b = self.factors[f"lokr_w{which}_a"], self.factors[f"lokr_w{which}_b"]
        if (core := self.factors.get(f"lokr_t{which}")) is not None:
            return torch.einsum("i j k l, j r, i p -> p r k l", core, b, a)
        return a @ b


class Difference(Delta):
    """A whole difference of the weight's own shape."""

    def change(self, weight: Tensor, strength: float) -> Tensor:
        """Return the difference (see Delta.change)."""
        return self.factors["diff"].reshape(weight.shape)

    def rank(self) -> int | None:
        """Return None: there is nothing to divide by."""
        return None


def require_size(count: int, shape: torch.Size) -> None:
    """Refuse a product of another size before it is computed: it may be far larger than the weight."""
    if count != shape.numel():
        raise ValueError(f"its product has {count} numbers, the weight is {list(shape)}")


def _merge_decomposed(weight: Tensor, change: Tensor, magnitude: Tensor, strength: float) -> Tensor:
    """Merge with DoRA: the direction is the changed weight's, the length of each row or column the file's.

    Rows are measured on the weight itself, columns on the changed one, as in ComfyUI (0.8.0).
    """
    changed = weight + change
    is_by_row = magnitude.shape[0] == weight.shape[0]
    lengths = _row_lengths(weight) if is_by_row else _row_lengths(changed.transpose(0, 1)).transpose(0, 1)
    scaled = changed * (magnitude / (lengths + torch.finfo(weight.dtype).eps))
    return scaled if strength == 1.0 else weight + strength * (scaled - weight)


def _row_lengths(matrix: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(matrix.reshape(matrix.shape[0], -1), dim=1, keepdim=True)
    return lengths.reshape(matrix.shape[0], *(1,) * (matrix.ndim - 1))
