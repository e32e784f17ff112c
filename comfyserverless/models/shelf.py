"""Keep loaded things by key within a byte budget, with parts that share the memory of others.

A thing with a parent shares the parent's weights, so the parent stays while the thing does. Not safe for
several threads: the owner locks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from comfyserverless.residency.lru import LruBudget

T = TypeVar("T")


class Shelf:
    """Loaded things by key; the least recently used goes first when the budget is exceeded.

    budget_bytes: None for no limit. What a caller still holds lives on after it left the shelf.
    """

    def __init__(self, budget_bytes: int | None) -> None:
        self._limit_bytes = sys.maxsize if budget_bytes is None else budget_bytes
        self._budget = LruBudget(self._limit_bytes)
        #: all and only keys that the budget calls resident
        self._values: dict[str, Any] = {}
        self._sizes_bytes: dict[str, int] = {}
        self._parents: dict[str, str] = {}

    @property
    def total_bytes(self) -> int:
        """Bytes of everything on the shelf, shared weights counted once."""
        return self._budget.total_bytes

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def take(self, key: str, load: Callable[[], tuple[T, int]], parent: str | None = None) -> T:
        """Return the thing at `key`, loading it and making room for it if it is not there.

        load: returns the thing and the bytes that it does not share with its parent. parent: a key that is on
        the shelf. Whatever `load` raises passes through, and nothing has changed then.
        """
        if key not in self._values:
            value, size_bytes = load()
            self._values[key], self._sizes_bytes[key] = value, size_bytes
            if parent is not None:
                self._budget.pin(parent)
                self._parents[key] = parent
        gone = self._budget.use(key, self._sizes_bytes[key])
        while gone:
            for old in gone:
                self._drop(old)
            gone = self._budget.trim(keep=key)
        taken: T = self._values[key]
        return taken

    def clear(self) -> None:
        """Forget everything."""
        self._budget = LruBudget(self._limit_bytes)
        for content in (self._values, self._sizes_bytes, self._parents):
            content.clear()

    def _drop(self, key: str) -> None:
        del self._values[key], self._sizes_bytes[key]
        if (parent := self._parents.pop(key, None)) is not None:
            self._budget.unpin(parent)
