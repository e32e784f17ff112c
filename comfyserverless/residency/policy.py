"""Say in which order weights leave a worker's memory: by layer, and the coarser ways it is measured against.

An order is a list of *units*; the layers of a unit leave together. `layers` follows the paper's section 5.3:
the least recently used model first, its last layer first, prefixes last. Among prefixes, the last sixteenth of
each goes before the sixteenth before it of any: prefixes that are used equally often hide equally much per
byte, so a budget that cannot hold all of them keeps the front of each rather than all of a few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

LayerKey = tuple[str, int]
"""(model, number of the layer in execution order)."""

PolicyName = Literal["layers", "models", "workflows", "none"]
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)

_SLICES = 16


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model with what may leave: present layers in ascending order; ranks: of all layers, see `rank_layers`.

    is_active: a run of it is in progress, and most likely its next step needs all of it again.
    """

    model: str
    group: str
    present: Sequence[int]
    ranks: Sequence[int]
    is_active: bool


def eviction_order(policy: PolicyName, candidates: Sequence[Candidate]) -> Iterator[tuple[LayerKey, ...]]:
    """Yield the units in the order in which they leave; candidates: least recently used first.

    layers: one layer a unit, active models after all others. models: whole models. workflows: all models of a
    group. none: whole models (that they leave at all is the table's business).
    """
    if policy == "layers":
        yield from _by_layer([each for each in candidates if not each.is_active])
        yield from _by_layer([each for each in candidates if each.is_active])
    elif policy == "workflows":
        groups: dict[str, list[LayerKey]] = {}
        for each in reversed(candidates):  # the most recent member says when its group was used
            groups.setdefault(each.group, []).extend((each.model, layer) for layer in each.present)
        yield from (tuple(unit) for unit in reversed(groups.values()) if unit)
    else:
        yield from (tuple((each.model, layer) for layer in each.present) for each in candidates if each.present)


def rank_layers(sizes_bytes: Sequence[int], prefix: int) -> list[int]:
    """Return the rank of each layer, the highest leaves first: 16 behind the prefix, 15 to 0 in its parts.

    prefix: how many first layers hide the load of the rest. Sixteenths are those of the prefix's bytes; the
    place where a layer begins decides.
    """
    total_bytes = max(1, sum(sizes_bytes[:prefix]))
    ranks: list[int] = []
    before_bytes = 0
    for layer, size_bytes in enumerate(sizes_bytes):
        part = min(before_bytes * _SLICES // total_bytes, _SLICES - 1)
        ranks.append(part if layer < prefix else _SLICES)
        before_bytes += size_bytes
    return ranks


def _by_layer(candidates: Sequence[Candidate]) -> Iterator[tuple[LayerKey, ...]]:
    for rank in range(_SLICES, -1, -1):
        for each in candidates:
            yield from (((each.model, layer),) for layer in reversed(each.present) if each.ranks[layer] == rank)
