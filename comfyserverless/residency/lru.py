"""Keep whole models within a byte budget: the least recently used one that nobody uses goes first."""

from __future__ import annotations


class LruBudget:
    """Account for what is resident, by key. It decides; the caller loads and frees.

    A key that is pinned (in use) is never named for eviction, so the total may exceed the budget while all keys
    are in use; the surplus goes with the next `use` or `trim` after an unpin.
    """

    def __init__(self, budget_bytes: int) -> None:
        if budget_bytes < 0:
            raise ValueError(f"budget_bytes is {budget_bytes}; allowed: 0 or more")
        self.budget_bytes = budget_bytes
        #: bytes of all and only resident keys, least recently used first
        self._sizes_bytes: dict[str, int] = {}
        #: all and only keys in use, with how many times; every one is resident
        self._pins: dict[str, int] = {}
        self._total_bytes = 0

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all resident keys."""
        return self._total_bytes

    def __contains__(self, key: str) -> bool:
        return key in self._sizes_bytes

    def keys(self) -> list[str]:
        """List the resident keys, least recently used first."""
        return list(self._sizes_bytes)

    def use(self, key: str, size_bytes: int) -> list[str]:
        """Make a key resident, or touch it, at this size; it becomes the most recently used.

        Returns the keys that were evicted for it, in order; never the key itself. Raises ValueError for a
        negative size.
        """
        if size_bytes < 0:
            raise ValueError(f"size_bytes of {key!r} is {size_bytes}; allowed: 0 or more")
        self._total_bytes += size_bytes - self._sizes_bytes.pop(key, 0)
        self._sizes_bytes[key] = size_bytes
        return self.trim(keep=key)

    def trim(self, keep: str | None = None) -> list[str]:
        """Evict until the budget holds or only pinned keys (and `keep`) are left; returns the evicted keys."""
        evicted: list[str] = []
        for key in list(self._sizes_bytes):
            if self._total_bytes <= self.budget_bytes:
                break
            if key != keep and key not in self._pins:
                self._total_bytes -= self._sizes_bytes.pop(key)
                evicted.append(key)
        return evicted

    def remove(self, key: str) -> None:
        """Forget a key that was freed for another reason. Raises KeyError if it is not resident or in use."""
        if key in self._pins:
            raise KeyError(f"{key!r} is in use")
        self._total_bytes -= self._sizes_bytes.pop(key)

    def pin(self, key: str) -> None:
        """Mark a resident key as in use, once more. Raises KeyError if it is not resident."""
        if key not in self._sizes_bytes:
            raise KeyError(f"{key!r} is not resident")
        self._pins[key] = self._pins.get(key, 0) + 1

    def unpin(self, key: str) -> None:
        """End one use. Raises KeyError if the key is not in use."""
        if self._pins[key] == 1:
            del self._pins[key]
        else:
            self._pins[key] -= 1
