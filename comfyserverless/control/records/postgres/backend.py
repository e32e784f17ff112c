"""Keep the records in PostgreSQL; while the database is away everything is refused, and then it goes on.

One connection writes, one reads. A commit whose answer was lost with the connection may have happened or not:
the database is asked when it is back, and what it has is not written again.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from comfyserverless.control.records.base import DatabaseAwayError, Opening, RecordQuery, Retention
from comfyserverless.control.records.changes import Accepted, Change, PendingDropped
from comfyserverless.control.records.postgres.address import Address, read_address
from comfyserverless.control.records.postgres.link import Link
from comfyserverless.control.records.postgres.schema import last_commit, mark_commit, retake, take
from comfyserverless.control.records.reading import Reader
from comfyserverless.control.records.usage.query import UsagePage, UsageQuery, UsageSpan
from comfyserverless.control.records.writing import Writer
from comfyserverless.control.views import RunRecord
from comfyserverless.core.errors import CapacityError, ConfigError
from comfyserverless.core.ids import PromptId, TenantId

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Unsure:
    """A commit without an answer: the number that it leaves in the database, and what is in it."""

    number: int
    changes: tuple[Change, ...]


class PostgresRecords:
    """Implement `base.Backend`. Raises ConfigError if the database cannot be used, or has another server."""

    def __init__(self, address: Address, retention: Retention) -> None:
        self._address = address
        self._retention = retention
        self._token = secrets.token_hex(6)
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        self._writing = Link(address, self._token, is_reader=False)
        self._reading = Link(address, self._token, is_reader=True)
        self._reader = Reader(self._reading.run)
        self._commits = itertools.count(1)
        self._unsure: _Unsure | None = None
        #: what commits without an answer have written, by identity: what is tried again is the same object
        self._written: dict[int, Change] = {}
        self._is_ousted = False
        try:
            self._writing.connect()
            with self._writing.errors():
                self._epoch = take(self._writing.run, address.shown)
                self._writer = Writer(self._writing.run, retention)
            self._reading.connect()
        except CapacityError as exc:
            self.close()
            raise ConfigError(str(exc)) from None
        except BaseException:
            self.close()
            raise

    def open(self, now_ms: int) -> Opening:
        """Take over what the last server left."""
        with self._transaction():
            self._writer.tidy(now_ms)
            return self._writer.take_over(now_ms)

    def commit(self, changes: Sequence[Change], now_ms: int) -> None:
        """Apply changes, all or none."""
        with self._transaction(changes) as due:
            with self._writing.together():
                for change in due:
                    self._writer.apply(change)
            self._writer.settle()

    def tidy(self, now_ms: int) -> None:
        """Forget history and usage that is too old."""
        with self._transaction():
            self._writer.tidy(now_ms)

    def find(self, tenant: TenantId, prompt_id: PromptId) -> RunRecord | None:
        """Return an ended prompt."""
        return self._read(lambda reader: reader.find(tenant, prompt_id))

    def history_count(self, tenant: TenantId) -> int:
        """Count the ended prompts of a tenant."""
        return self._read(lambda reader: reader.history_count(tenant))

    def history(self, tenant: TenantId, start: int, count: int) -> list[RunRecord]:
        """Return ended prompts, oldest end first."""
        return self._read(lambda reader: reader.history(tenant, start, count))

    def count(self, query: RecordQuery) -> int:
        """Count the ended prompts of a list."""
        return self._read(lambda reader: reader.count(query))

    def keys(self, query: RecordQuery, start: int, count: int) -> list[tuple[int, int]]:
        """Return (sort value, key) of a page of a list."""
        return self._read(lambda reader: reader.keys(query, start, count))

    def load(self, keys: Sequence[int]) -> dict[int, RunRecord]:
        """Return prompts by key."""
        return self._read(lambda reader: reader.load(keys))

    def usage(self, query: UsageQuery, span: UsageSpan) -> UsagePage:
        """Add usage up."""
        return self._read(lambda reader: reader.usage(query, span))

    def close(self) -> None:
        """End the connections, and with them the lock."""
        with self._read_lock:
            self._reading.close()
        with self._write_lock:
            self._writing.close()

    @contextmanager
    def _transaction(self, changes: Sequence[Change] = ()) -> Iterator[Sequence[Change]]:
        """Begin and commit; yields what of the changes is still to be written."""
        run = self._writing.run
        with self._write_lock:
            self._begin()
            with self._writing.errors():
                try:
                    due = self._due(changes)
                    yield due
                    self._commit(due)
                except BaseException:
                    if not self._writing.is_lost:
                        if self._writing.is_in_transaction:
                            run("ROLLBACK")
                        self._writer.recount()
                    raise

    def _begin(self) -> None:
        """Begin a transaction; a connection that was lost since the last one is made again."""
        if not self._writing.is_lost:
            with suppress(DatabaseAwayError), self._writing.errors():
                self._writing.run("BEGIN")
                return
        self._reconnect()
        with self._writing.errors():
            self._writing.run("BEGIN")

    def _commit(self, due: Sequence[Change]) -> None:
        if due:
            self._unsure = _Unsure(next(self._commits), tuple(due))
            mark_commit(self._writing.run, self._unsure.number)
        try:
            self._writing.run("COMMIT")
        finally:
            if not self._writing.is_lost:
                self._unsure = None

    def _due(self, changes: Sequence[Change]) -> Sequence[Change]:
        """Leave out what is written already, though the answer was lost."""
        due = [change for change in changes if id(change) not in self._written]
        if len(due) == len(changes):  # those that were to be tried again came first
            self._written.clear()
        return due

    def _reconnect(self) -> None:
        """Connect again and be the one server again. Raises CapacityError."""
        if self._is_ousted:
            raise CapacityError(self._ousted())
        self._writing.connect()
        try:
            with self._writing.errors():
                if retake(self._writing.run, self._token, self._address.shown) != self._epoch:
                    self._is_ousted = True
                    raise CapacityError(self._ousted())
                self._settle()
                self._writer = Writer(self._writing.run, self._retention)
        except BaseException:
            self._writing.drop()
            raise

    def _settle(self) -> None:
        """Find out whether the commit without an answer has happened, and take back what it must not have done.

        Whoever waited for it was told that it failed: so a prompt that it has accepted is withdrawn.
        """
        run, unsure = self._writing.run, self._unsure
        if unsure is not None and last_commit(run) == unsure.number:
            run("BEGIN")
            writer = Writer(run, self._retention)
            for change in unsure.changes:
                if isinstance(change, Accepted):
                    writer.apply(PendingDropped(change.record.tenant, (change.record.prompt_id,)))
            run("COMMIT")
            self._written |= {id(change): change for change in unsure.changes}
        self._unsure = None

    def _ousted(self) -> str:
        return (
            f"Another server has used the database {self._address.shown} while this one had no connection;"
            " nothing can be recorded any more: restart this server"
        )

    def _read(self, ask: Callable[[Reader], _T]) -> _T:
        """Read; a connection that was lost since the last time is made again."""
        with self._read_lock:
            if not self._reading.is_lost:
                with suppress(DatabaseAwayError), self._reading.errors():
                    return ask(self._reader)
            self._reading.connect()
            with self._reading.errors():
                return ask(self._reader)


def open_database(text: str, retention: Retention, now_ms: int) -> tuple[PostgresRecords, Opening]:
    """Open the database of an address. Raises ConfigError."""
    records = PostgresRecords(read_address(text), retention)
    try:
        return records, records.open(now_ms)
    except CapacityError as exc:
        records.close()
        raise ConfigError(str(exc)) from None
    except BaseException:
        records.close()
        raise
