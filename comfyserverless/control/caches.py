"""Keep the cached node results of every tenant apart, with the pins that hold what they mention."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence

from comfyserverless.control.cache import CachedNode, NodeCache
from comfyserverless.control.dispatch import Dispatcher
from comfyserverless.control.files import FolderPaths
from comfyserverless.core.ids import TenantId, WorkerId


class TenantCaches:
    """Own a cache for each tenant. mode, limit: of `NodeCache`; dispatcher: asked for, it is made later.

    Raises ConfigError for an unknown mode.
    """

    def __init__(self, mode: str, limit: int, dispatcher: Callable[[], Dispatcher]) -> None:
        NodeCache(mode, limit)  # a bad mode is an error at start, not at first use
        self._mode = mode
        self._limit = limit
        self._dispatcher = dispatcher
        self._caches: dict[TenantId, NodeCache] = {}
        #: the files that a tenant could see when its cache was last used
        self._filled_with: dict[TenantId, FolderPaths] = {}

    def of(self, tenant: TenantId, files: FolderPaths) -> NodeCache:
        """Return a tenant's cache, emptied if the tenant may use other models than when it was filled."""
        if self._filled_with.get(tenant) is not files:
            self.clear(tenant)
            self._filled_with[tenant] = files
        return self._caches.setdefault(tenant, NodeCache(self._mode, self._limit))

    def clear(self, tenant: TenantId | None = None) -> None:
        """Drop the results of one tenant, or all; running prompts keep what they use."""
        for each, cache in self._caches.items():
            if tenant in (None, each):
                self._unpin(cache.clear())

    def retain(
        self,
        cache: NodeCache,
        signatures: Collection[Hashable | None],
        homes: Collection[Hashable] = (),
    ) -> None:
        """Drop what no prompt in progress uses, if the mode wants that; see NodeCache."""
        self._unpin(cache.retain(signatures, homes))

    def drop_added(
        self, cache: NodeCache, homes: Collection[Hashable], signatures: Collection[Hashable | None]
    ) -> None:
        """Drop nodes that earlier expansions of these homes have added and the last one has not."""
        if homes:
            self._unpin(cache.drop_added(homes, signatures))

    def let_go(self, worker: WorkerId) -> bool:
        """Drop results in a worker's arena: it is lost, or full. False if there were none.

        Results that runs use as well stay: those are worth rebuilding, and worth their space.
        """
        dropped = []
        for cache in self._caches.values():
            there = self._dispatcher().on_worker(cache.invocations(), worker)
            dropped += cache.discard(there)
        self._unpin(dropped)
        return bool(dropped)

    def _unpin(self, entries: Sequence[CachedNode]) -> None:
        for entry in entries:
            self._dispatcher().unpin(entry.invocations, "cache")
