"""Follow every prompt from its acceptance to its place in history, in memory and on disk.

What waits or runs is in memory and on disk; what is over is on disk only. Nobody is told that a prompt was
accepted, deleted or is in history before a loss of power could not undo it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence

from comfyserverless.control.describing import now_ms
from comfyserverless.control.records import changes
from comfyserverless.control.records.base import NamedSaves, Opening, RecordQuery
from comfyserverless.control.records.ending import MOST_CRASHES, end_as_failed, end_as_interrupted
from comfyserverless.control.records.packed import PackedJson
from comfyserverless.control.records.queue import PromptQueue
from comfyserverless.control.records.saves import RunPublisher, complete_saves
from comfyserverless.control.records.store import RecordStore
from comfyserverless.control.saving import Publisher
from comfyserverless.control.views import RunRecord, RunStatus, priority_of
from comfyserverless.core.errors import CapacityError
from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.graph.plan import Plan

log = logging.getLogger(__name__)

_Key = tuple[TenantId, PromptId]
_NOT_OVER = frozenset({RunStatus.PENDING, RunStatus.RUNNING})


class Prompts:
    """Own the queue and the store. opening: what the store held; its unfinished prompts wait again."""

    def __init__(self, store: RecordStore, opening: Opening) -> None:
        self.queue = PromptQueue()
        self._store = store
        self._publisher = Publisher()
        #: tenant -> how many prompts without a number of their own it has sent
        self._counters: dict[TenantId, int] = dict(opening.counters)
        #: what a dead server has published for prompts that wait again
        self._saves: dict[_Key, NamedSaves] = {}
        #: all and only prompts from the last server that have not begun in this one
        self._restored: set[_Key] = set()
        #: all and only running prompts that their users have interrupted
        self._stopped: set[_Key] = set()
        self._restore(opening)

    def _restore(self, opening: Opening) -> None:
        for each in opening.unfinished:
            record = each.record
            saves = complete_saves(each.saves)
            if each.is_stopped or each.crashes >= MOST_CRASHES:
                end = end_as_interrupted if each.is_stopped else end_as_failed
                end(record, now_ms())
                log.warning("Prompt %s of the last run is not tried again: %s", record.prompt_id, record.status)
                self._store.note(changes.Ended(record))
                continue
            record.started_ms = None
            record.priority = _priority_of(record)
            self._restored.add((record.tenant, record.prompt_id))
            if saves:
                self._saves[record.tenant, record.prompt_id] = saves
            self.queue.add(record, None)
        if self._restored:
            log.info("%d prompts of the last run wait again", len(self._restored))

    @property
    def has_restored(self) -> bool:
        """Tell whether prompts of the last server have not begun yet."""
        return bool(self._restored)

    def can_write(self) -> bool:
        """Tell whether prompts can be recorded, as far as is known."""
        return self._store.can_write()

    def next_number(self, tenant: TenantId, *, front: bool) -> float:
        """Count a prompt, and return its place: ever larger, or ever smaller for those in front."""
        counter = self._counters.get(tenant, 0)
        self._counters[tenant] = counter + 1
        return -counter if front else counter

    def accept(self, record: RunRecord, plan: Plan, on_accepted: Callable[[], None]) -> asyncio.Future[None]:
        """Record a prompt and put it into the queue; the future is done then, or holds a CapacityError.

        It goes its way also if nobody awaits it any more.
        """
        self.queue.reserve(record)
        written = self._store.write(changes.Accepted(record, self._counters.get(record.tenant, 0)))

        def finish(done: asyncio.Future[None]) -> None:
            if done.cancelled() or done.exception() is not None:
                self.queue.withdraw(record)
                return
            self.queue.add(record, plan)
            on_accepted()

        written.add_done_callback(finish)
        return written

    async def begin(self, record: RunRecord) -> None:
        """Note that a prompt runs. One that may have ended a server before waits until that is on disk."""
        key = (record.tenant, record.prompt_id)
        started = changes.Started(*key, now_ms())
        if key in self._restored:
            self._restored.discard(key)
            with contextlib.suppress(CapacityError):  # the disk is full, say: better run it than not
                await self._store.write(started)
        else:
            self._store.note(started)

    def publisher_of(self, record: RunRecord) -> RunPublisher:
        """Return what names the files of a prompt that begins."""
        key = (record.tenant, record.prompt_id)
        return RunPublisher(self._publisher, self._store, key, self._saves.get(key, {}))

    def stop(self, record: RunRecord) -> None:
        """Note that its user has interrupted a running prompt."""
        self._stopped.add((record.tenant, record.prompt_id))
        self._store.note(changes.Stopped(record.tenant, record.prompt_id))

    def is_stopped(self, record: RunRecord) -> bool:
        """Tell whether its user has interrupted a running prompt."""
        return (record.tenant, record.prompt_id) in self._stopped

    def end(self, record: RunRecord, folders: Sequence[str]) -> None:
        """Move a running prompt to history. folders: where files of it appeared."""
        self._let_go(record)
        self._store.note(changes.Ended(record, tuple(folders)))

    def park(self, record: RunRecord) -> None:
        """Leave a running prompt to the next server."""
        self._let_go(record)
        self._store.note(changes.Parked(record.tenant, record.prompt_id))

    def drop_pending(self, tenant: TenantId, prompt_ids: Collection[PromptId] | None) -> int:
        """Forget pending prompts (None: all of the tenant); returns how many there were."""
        dropped = self.queue.drop_pending(tenant, prompt_ids)
        for each in dropped:
            self._saves.pop((tenant, each), None)
            self._restored.discard((tenant, each))
        if dropped:
            self._store.note(changes.PendingDropped(tenant, tuple(dropped)))
        return len(dropped)

    def drop_history(self, tenant: TenantId, prompt_ids: Collection[PromptId] | None) -> None:
        """Forget ended prompts (None: all of the tenant); unknown ids are ignored."""
        ids = None if prompt_ids is None else tuple(prompt_ids)
        self._store.note(changes.HistoryDropped(tenant, ids))

    async def settled(self) -> None:
        """Wait until what was done before is on disk."""
        await self._store.settled()

    async def find(self, tenant: TenantId, prompt_id: PromptId) -> RunRecord | None:
        """Return a prompt in any state, None if this tenant has no such prompt."""
        known = self.queue.find(tenant, prompt_id)
        if known is not None:
            return known
        return await self._store.read(lambda backend: backend.find(tenant, prompt_id))

    async def history_count(self, tenant: TenantId) -> int:
        """Count the ended prompts of a tenant."""
        return await self._store.read(lambda backend: backend.history_count(tenant))

    async def history(self, tenant: TenantId, start: int, count: int) -> list[RunRecord]:
        """Return ended prompts, oldest end first, from position `start` on."""
        return await self._store.read(lambda backend: backend.history(tenant, start, count))

    async def select(self, query: RecordQuery, start: int, count: int | None) -> tuple[list[RunRecord], int]:
        """Return a page of a list of prompts in all states, and how long the list is.

        count: of the page, None for all from `start` on.
        """
        active = [each for each in self._active(query.tenant) if query.matches(each)]
        active.sort(key=query.value, reverse=query.is_descending)
        ended = 0
        if not query.statuses <= _NOT_OVER:
            ended = await self._store.read(lambda backend: backend.count(query))
        total = ended + len(active)
        stop = total if count is None else min(total, start + count)
        if start >= stop:
            return [], total
        # Before position `start` are at most all active ones, so of the ended ones at least the rest.
        first = max(0, start - len(active))
        keys: list[tuple[int, int]] = []
        if ended:
            keys = await self._store.read(lambda backend: backend.keys(query, first, stop - first))
        merged: list[tuple[int, RunRecord | int]] = [*((query.value(each), each) for each in active), *keys]
        merged.sort(key=lambda pair: pair[0], reverse=query.is_descending)
        page = [each for _, each in merged[start - first : stop - first]]
        wanted = [each for each in page if isinstance(each, int)]
        loaded = await self._store.read(lambda backend: backend.load(wanted)) if wanted else {}
        found = [each if isinstance(each, RunRecord) else loaded.get(each) for each in page]
        return [each for each in found if each is not None], total

    def close(self) -> None:
        """Write what is left. Blocks."""
        self._store.close()

    def _active(self, tenant: TenantId) -> list[RunRecord]:
        return [*self.queue.running(tenant), *self.queue.pending(tenant)]

    def _let_go(self, record: RunRecord) -> None:
        self.queue.end(record)
        self._saves.pop((record.tenant, record.prompt_id), None)
        self._stopped.discard((record.tenant, record.prompt_id))


def _priority_of(record: RunRecord) -> int:
    """Read the priority that a stored prompt was accepted with; one that cannot be read is as good as none."""
    extra_data = record.extra_data
    if isinstance(extra_data, PackedJson) and b'"priority"' not in extra_data.text:
        return 0  # thousands may wait: only those are parsed that may name one
    with contextlib.suppress(ValueError):
        return priority_of(extra_data)
    return 0
