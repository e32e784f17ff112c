"""Write and read records without holding up the event loop: one thread writes, one reads.

Changes that arrive while one commit is under way share the next one, so a burst of prompts costs few syncs. A
reader sees every change that was made before it asked. What cannot be written now is tried again, unless
somebody waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from comfyserverless.control.records.base import Backend
from comfyserverless.control.records.changes import Change, Ended, FilesNamed
from comfyserverless.core.errors import CapacityError

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_MOST_AT_ONCE = 512
_RETRY_S = 1.0
_CLOSE_RETRIES = 3
_TIDY_EVERY_S = 600.0
_PATIENCE_S = 15.0
"""How long a failed write says that others would fail: a server that nobody asks would never find out."""

_STUCK_S = 5.0
"""A commit that takes longer is a database that cannot be written now."""

_READ_PATIENCE_S = 2.0
"""How long a reader waits for changes that cannot be written; then it reads what is there."""


@dataclass(slots=True)
class _Pending:
    """A change on its way, and who waits for it; change None: somebody only waits for those before it."""

    change: Change | None
    loop: asyncio.AbstractEventLoop | None = None
    waiter: asyncio.Future[None] | None = None


class RecordStore:
    """Own a backend and its two threads; all methods but `close` are called on the event loop."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._queue: deque[_Pending] = deque()
        self._wake = threading.Condition()
        self._is_closing = False
        self._is_failing = False
        #: when a write failed last, in monotonic seconds; only of interest while failing
        self._failed_s = 0.0
        #: when the commit in progress began, None between commits
        self._writing_since_s: float | None = None
        self._writer = threading.Thread(target=self._write_all, name="records-writer", daemon=True)
        self._reader = ThreadPoolExecutor(1, "records-reader")
        self._writer.start()

    def note(self, change: Change) -> None:
        """Write a change soon; nobody waits for it."""
        self._put(_Pending(change))

    def write(self, change: Change) -> asyncio.Future[None]:
        """Write a change; the future is done when it survives a loss of power, or holds a CapacityError."""
        return self._await(change)

    def can_write(self) -> bool:
        """Tell whether changes can be written, as far as is known.

        False for a while after one could not (then it is worth a try), and while one takes very long.
        """
        now_s, since_s = time.monotonic(), self._writing_since_s
        is_stuck = since_s is not None and now_s - since_s > _STUCK_S
        return not is_stuck and (not self._is_failing or now_s - self._failed_s > _PATIENCE_S)

    async def settled(self) -> None:
        """Wait until everything that was noted before is written, or for a while if it cannot be."""
        if not self._is_failing:
            with contextlib.suppress(TimeoutError, CapacityError):
                async with asyncio.timeout(_READ_PATIENCE_S):
                    await self._await(None)

    async def read(self, ask: Callable[[Backend], _T]) -> _T:
        """Ask the backend for something, on the reading thread. Raises CapacityError."""
        await self.settled()
        return await asyncio.get_running_loop().run_in_executor(self._reader, ask, self._backend)

    def close(self) -> None:
        """Write what is left, and end the threads and the backend. Blocks."""
        with self._wake:
            self._is_closing = True
            self._wake.notify()
        self._writer.join()
        self._reader.shutdown()
        self._backend.close()

    def _await(self, change: Change | None) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._put(_Pending(change, loop, waiter))
        return waiter

    def _put(self, pending: _Pending) -> None:
        with self._wake:
            self._queue.append(pending)
            self._wake.notify()

    # -- the writing thread -----------------------------------------------------------------------

    def _write_all(self) -> None:
        retries, tidied_s = 0, time.monotonic()
        while True:
            batch = self._take()
            if time.monotonic() - tidied_s > _TIDY_EVERY_S:
                tidied_s = time.monotonic()
                self._tidy()
            if not batch:
                if self._is_closing:
                    return
                continue
            failed = self._commit(batch)
            if not failed:
                retries = 0
                continue
            self._queue_front(failed)
            retries += 1
            if self._is_closing and retries > _CLOSE_RETRIES:
                log.error("%d changes of records could not be written at the end", len(self._queue))
                return
            time.sleep(_RETRY_S)

    def _take(self) -> list[_Pending]:
        """Wait for changes and take them; returns none at the end, or when it is time to tidy."""
        with self._wake:
            if not self._queue and not self._is_closing:
                self._wake.wait(_TIDY_EVERY_S)
            count = min(len(self._queue), _MOST_AT_ONCE)
            return [self._queue.popleft() for _ in range(count)]

    def _commit(self, batch: list[_Pending]) -> list[_Pending]:
        """Write a batch; returns what is to be tried again: all that nobody waits for."""
        try:
            self._apply(batch)
        except CapacityError as exc:
            if not self._is_failing:
                log.error("%s; trying again", exc)
            self._is_failing, self._failed_s = True, time.monotonic()
            _answer([pending for pending in batch if pending.waiter is not None], exc)
            return [pending for pending in batch if pending.waiter is None]
        except Exception as exc:  # noqa: BLE001  (the border of the writing thread)
            self._commit_apart(batch, exc)
            return []
        if self._is_failing:
            log.warning("Records can be written again")
        self._is_failing = False
        _answer(batch, None)
        return []

    def _apply(self, batch: list[_Pending]) -> None:
        changes = [pending.change for pending in batch if pending.change is not None]
        _sync_files(changes)
        if changes:
            self._writing_since_s = time.monotonic()
            try:
                self._backend.commit(changes, time.time_ns() // 1_000_000)
            finally:
                self._writing_since_s = None

    def _commit_apart(self, batch: list[_Pending], error: Exception) -> None:
        """Find the change that no backend can write, so that it costs no other one; it is given up."""
        if len(batch) > 1:
            for pending in batch:
                self._queue_front(self._commit([pending]))
            return
        log.error("A record cannot be written and is given up: %r", batch[0].change, exc_info=error)
        _answer(batch, CapacityError(f"This cannot be recorded: {error}"))

    def _queue_front(self, pending: list[_Pending]) -> None:
        with self._wake:
            self._queue.extendleft(reversed(pending))

    def _tidy(self) -> None:
        try:
            self._backend.tidy(time.time_ns() // 1_000_000)
        except CapacityError as exc:
            log.warning("Old history cannot be removed now: %s", exc)


def _sync_files(changes: Iterable[Change]) -> None:
    """Bring the files that changes speak of to the disk, before the changes: what is named must be there."""
    for change in changes:
        match change:
            case FilesNamed():
                for file in change.files:
                    _sync(file.staged)
            case Ended():
                for folder in change.folders:
                    _sync(folder)


def _sync(path: str) -> None:
    """Sync a file or folder; one that is gone, or on a file system that cannot, is left alone."""
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def _answer(waiting: Iterable[_Pending], error: Exception | None) -> None:
    """Tell those who wait, on their event loop, with one call for each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for pending in waiting:
        if pending.loop is not None and pending.waiter is not None:
            by_loop.setdefault(pending.loop, []).append(pending.waiter)
    for loop, waiters in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, waiters, error)


def _settle(waiters: list[asyncio.Future[None]], error: Exception | None) -> None:
    for waiter in waiters:
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
