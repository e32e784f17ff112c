"""Tell from the tensors of an adapted layer what kind of adapter they make up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from comfyserverless.models.lora.deltas import Delta, Difference, Factors, Hadamard, Kronecker, LowRank
from comfyserverless.models.lora.turning import Butterfly, Generalized, Rotation

_NEEDED: Mapping[type[Delta], frozenset[str]] = {
    LowRank: frozenset({"up", "down"}),
    Hadamard: frozenset({"hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b"}),
    Generalized: frozenset({"a1", "a2", "b1", "b2"}),
    Rotation: frozenset({"oft_blocks"}),
    Difference: frozenset({"diff"}),
}
_STAGES = 4
"""Dimensions of BOFT's blocks, which stand under the name of OFT's."""


def find_kind(names: Iterable[str]) -> type[Delta] | None:
    """Return the kind of adapter that tensors of these roles make up, None if they make up none."""
    names = frozenset(names)
    if all({f"lokr_w{n}"} <= names or {f"lokr_w{n}_a", f"lokr_w{n}_b"} <= names for n in "12"):
        return Kronecker
    return next((kind for kind, needed in _NEEDED.items() if needed <= names), None)


def make_delta(factors: Factors) -> Delta | None:
    """Return the adapter that a layer's tensors make up, None if they are incomplete or of an unknown kind."""
    kind = find_kind(factors)
    if kind is Rotation and factors["oft_blocks"].ndim == _STAGES:
        kind = Butterfly
    return None if kind is None else kind(factors)
