"""Let a U-Net start before its ControlNet has finished: residuals that are fetched where they are used.

diffusers adds the residuals of the input blocks right after those blocks, long before the output blocks
read the sums. A `DeferredSum` stands for such a sum and fetches its residual when torch first reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

MIDDLE = -1
"""The number of the middle block where features are added."""


class WithFeatures(Sequence[Tensor]):
    """Residuals of ControlNets, none of them or all, and what adapters add beside them.

    features: by the number of the input block, or MIDDLE, to whose output each is added before anything reads
    it.
    """

    def __init__(self, residuals: Sequence[Tensor], features: Mapping[int, Tensor]) -> None:
        self._residuals = residuals
        self.features = features

    def __len__(self) -> int:
        return len(self._residuals)

    def __getitem__(self, index: Any) -> Any:
        return self._residuals[index]


class DeferredSum:
    """Stand for `skip + residual` until an operation of torch needs the numbers.

    skip: None until the model adds its part. The fetch runs once.
    """

    def __init__(self, fetch: Callable[[], Tensor], skip: Tensor | None = None) -> None:
        self._fetch = fetch
        self._skip = skip
        self._sum: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        """The shape of the sum; residuals have the shape of what they are added to."""
        return self._fetch().shape if self._skip is None else self._skip.shape

    def value(self) -> Tensor:
        """Return the sum, fetching the residual if that has not happened yet."""
        if self._sum is None:
            residual = self._fetch()
            self._sum = residual if self._skip is None else self._skip + residual.to(self._skip)
        return self._sum

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Stay deferred when a tensor is added; become a tensor for every other operation."""
        if function in (torch.Tensor.add, torch.Tensor.__add__) and not kwargs and len(args) == 2:
            left, right = args
            if isinstance(left, Tensor) and isinstance(right, DeferredSum) and right._skip is None:
                return DeferredSum(right._fetch, left)
        return function(*_materialize(args), **_materialize(dict(kwargs or {})))


def _materialize(value: Any) -> Any:
    if isinstance(value, DeferredSum):
        return value.value()
    if isinstance(value, tuple | list):
        return type(value)(_materialize(item) for item in value)
    if isinstance(value, dict):
        return {key: _materialize(item) for key, item in value.items()}
    return value


def defer(residuals: Sequence[Tensor]) -> Iterator[DeferredSum]:
    """Yield a deferred sum for each residual of a sequence whose items may block when they are read."""
    for at in range(len(residuals)):
        yield DeferredSum(lambda at=at: residuals[at])  # type: ignore[misc]
