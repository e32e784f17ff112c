"""Keep what is known of models by key, until nothing of them is in memory and others were used since.

That is their structure and their places in files, not their weights, which come and go as the keeper says. Not
safe for several threads: the owner locks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from comfyserverless.models.resident.keeper import Keeper
from comfyserverless.models.resident.run import ResidentModel

T = TypeVar("T")

_KEPT = 16


class Shelf:
    """Known models by key; kept: how many stay at least."""

    def __init__(self, keeper: Keeper, kept: int = _KEPT) -> None:
        self._keeper = keeper
        self._kept = kept
        #: the thing and its layers, least recently used first
        self._things: dict[str, tuple[Any, Sequence[ResidentModel]]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._things

    def take(self, key: str, make: Callable[[], tuple[T, Sequence[ResidentModel]]]) -> T:
        """Return the thing at `key`, which `make` makes if it is not there; what that raises passes through."""
        entry = self._things.pop(key, None)
        self._things[key] = made = make() if entry is None else entry
        if entry is None:
            self._drop(len(self._things) - self._kept, keep=key)
        taken: T = made[0]
        return taken

    def clear(self) -> None:
        """Drop all things of which nothing is in memory."""
        self._drop(len(self._things))

    def _drop(self, count: int, keep: str | None = None) -> None:
        for key in list(self._things):
            if count <= 0:
                return
            if key != keep and all(self._keeper.forget(model) for model in self._things[key][1]):
                del self._things[key]
                count -= 1
