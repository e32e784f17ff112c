"""Find what ControlNets add when patches evaluate other batches than those that were planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.guided import AddedBy, Residuals, chain, feature_blocks, feature_name
from comfyserverless.sampling.guidance import Batch, Entry


class PlannedResiduals:
    """What ControlNets add to the batches of an evaluation's plan, also for parts of them.

    planned: the batches of the plan; residuals: by application and batch index.
    """

    def __init__(self, planned: Sequence[Batch], residuals: AddedBy) -> None:
        self._planned = planned
        self._residuals = residuals

    def of(self, batch: Batch) -> Residuals | None:
        """Return what is added to a batch, None if nothing is.

        Raises PromptError if a patch asks for a conditioning with a ControlNet that is not in the plan.
        """
        parts: list[Residuals] = []
        features: list[Mapping[int, Tensor]] = []
        for application in batch.controls:
            given = self._residuals[application] if application < len(self._residuals) else None
            if given is None:
                continue
            places = [self._place(entry) for entry in batch.entries]
            slices = [(given[str(index)], at, count) for index, at, count in places if str(index) in given]
            if slices:
                parts.append(_Stacked(slices))
            if blocks := feature_blocks(given, places[0][0]):
                features.append({number: _feature(given, number, places) for number in blocks})
        return chain(parts, features)

    def _place(self, entry: Entry) -> tuple[int, int, int]:
        """Return (batch index, place in it, number of entries) of an entry in the plan."""
        for batch in self._planned:
            for at, planned in enumerate(batch.entries):
                if planned.cond is entry.cond and planned.region.box == entry.region.box:
                    return batch.index, at, len(batch.entries)
        raise PromptError(
            "a model patch evaluates a conditioning of its own that has a ControlNet: what the ControlNet adds"
            " is known for the sampler's conditionings only"
        )


def _feature(given: Mapping[str, Residuals], number: int, places: Sequence[tuple[int, int, int]]) -> Tensor:
    """Return what is added to a block for entries at places of the plan, stacked."""
    return _Stacked([(given[feature_name(index, number)], at, count) for index, at, count in places])[0]  # type: ignore[no-any-return]


class _Stacked(Sequence[Tensor]):
    """Slices of residuals, one per entry, stacked when they are read."""

    def __init__(self, slices: Sequence[tuple[Residuals, int, int]]) -> None:
        self._slices = slices

    def __len__(self) -> int:
        return len(self._slices[0][0])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if self._is_whole():
            return self._slices[0][0][index]
        return torch.cat([residuals[index].chunk(count)[at] for residuals, at, count in self._slices])

    def _is_whole(self) -> bool:
        """Tell whether the slices are one planned batch, in its order."""
        first, _, count = self._slices[0]
        return len(self._slices) == count and all(
            residuals is first and at == place for place, (residuals, at, _) in enumerate(self._slices)
        )
