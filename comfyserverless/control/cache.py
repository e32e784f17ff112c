"""Cache node results by signature, as ComfyUI does: classic, LRU or not at all.

An entry holds a pin on the invocations whose results its values mention; entries that fall out are
returned so that their pins can be given back.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable
from dataclasses import dataclass

from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import InvocationId
from comfyserverless.graph.lowering import NodeResult

CACHE_MODES = ("classic", "lru", "none")


@dataclass(frozen=True, slots=True)
class CachedNode:
    """A node's result, the invocations it mentions (pinned once by the cache), and the files it shows.

    home: of a node that an expansion has added, what it is kept for: the submitted node that it comes from.
    has_expanded: the result was made by other nodes.
    """

    result: NodeResult
    invocations: tuple[InvocationId, ...]
    files: tuple[str, ...] = ()
    home: Hashable | None = None
    has_expanded: bool = False

    def is_intact(self) -> bool:
        """Tell whether the files that the result shows are still there."""
        return all(os.path.exists(path) for path in self.files)


class NodeCache:
    """Hold the results of one tenant. Raises ConfigError for an unknown mode."""

    def __init__(self, mode: str, limit: int = 0) -> None:
        if mode not in CACHE_MODES:
            raise ConfigError(f"cache mode {mode!r} is not one of {', '.join(CACHE_MODES)}")
        if mode == "lru" and limit < 1:
            raise ConfigError(f"--cache-lru {limit}: must be at least 1")
        self._mode = mode
        self._limit = limit
        #: in order of last use, oldest first.
        self._entries: dict[Hashable, CachedNode] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_sharing(self) -> bool:
        """Tell whether equal nodes of one prompt share a result."""
        return self._mode != "none"

    def get(self, signature: Hashable | None) -> CachedNode | None:
        """Return the entry of a signature and mark it used; None if there is none or its files are gone."""
        entry = None if signature is None else self._entries.get(signature)
        if entry is None or not entry.is_intact():
            return None
        self._entries[signature] = self._entries.pop(signature)
        return entry

    def put(self, signature: Hashable | None, entry: CachedNode) -> list[CachedNode]:
        """Keep an entry; returns the entries that are out now (the new one itself if it is not kept)."""
        if self._mode == "none" or signature is None:
            return [entry]
        out = [old] if (old := self._entries.pop(signature, None)) is not None else []
        self._entries[signature] = entry
        if self._mode == "lru":
            while len(self._entries) > self._limit:
                out.append(self._entries.pop(next(iter(self._entries))))
        return out

    def retain(
        self, signatures: Collection[Hashable | None], homes: Collection[Hashable] = ()
    ) -> list[CachedNode]:
        """In classic mode drop what the prompts in progress do not use; returns what is out.

        homes: submitted nodes whose added nodes are kept too: which ones they will add nobody knows yet.
        """
        if self._mode != "classic":
            return []
        stale = [
            signature
            for signature, entry in self._entries.items()
            if signature not in signatures and (entry.home is None or entry.home not in homes)
        ]
        return [self._entries.pop(signature) for signature in stale]

    def drop_added(
        self, homes: Collection[Hashable], signatures: Collection[Hashable | None]
    ) -> list[CachedNode]:
        """In classic mode drop added nodes of these homes, but for `signatures`; returns what is out."""
        if self._mode != "classic":
            return []
        stale = [
            signature
            for signature, entry in self._entries.items()
            if entry.home in homes and signature not in signatures
        ]
        return [self._entries.pop(signature) for signature in stale]

    def discard(self, invocations: Collection[InvocationId]) -> list[CachedNode]:
        """Drop the entries that mention any of these invocations; returns them."""
        stale = [
            key for key, entry in self._entries.items() if any(i in invocations for i in entry.invocations)
        ]
        return [self._entries.pop(key) for key in stale]

    def invocations(self) -> list[InvocationId]:
        """List the invocations that entries mention, with repeats."""
        return [invocation for entry in self._entries.values() for invocation in entry.invocations]

    def clear(self) -> list[CachedNode]:
        """Drop everything; returns it."""
        out = list(self._entries.values())
        self._entries.clear()
        return out
