"""Keep the records in SQLite: a file with a write-ahead log, or memory for as long as the server lives."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from comfyserverless.control.records.base import Opening, RecordQuery, Retention
from comfyserverless.control.records.changes import Change
from comfyserverless.control.records.reading import Reader
from comfyserverless.control.records.schema import connect_memory, connect_reader, connect_writer
from comfyserverless.control.records.usage.query import UsagePage, UsageQuery, UsageSpan
from comfyserverless.control.records.writing import Writer
from comfyserverless.control.views import RunRecord
from comfyserverless.core.errors import CapacityError
from comfyserverless.core.ids import PromptId, TenantId


class SqliteRecords:
    """Implement `base.Backend`. path: the file, None for memory. Raises ConfigError if it cannot be used.

    A file has a connection for each side, so that a long read never holds up a write; memory has one.
    """

    def __init__(self, path: Path | None, retention: Retention) -> None:
        self._name = "in memory" if path is None else str(path)
        self._connection = connect_memory() if path is None else connect_writer(path)
        self._reading = self._connection if path is None else connect_reader(path)
        self._write_lock = threading.Lock()
        self._read_lock = self._write_lock if path is None else threading.Lock()
        self._writer = Writer(self._connection.execute, retention)
        self._reader = Reader(self._reading.execute)

    def open(self, now_ms: int) -> Opening:
        """Take over what the last server left."""
        with self._transaction():
            self._writer.tidy(now_ms)
            return self._writer.take_over(now_ms)

    def commit(self, changes: Sequence[Change], now_ms: int) -> None:
        """Apply changes, all or none."""
        with self._transaction():
            for change in changes:
                self._writer.apply(change)
            self._writer.settle()

    def tidy(self, now_ms: int) -> None:
        """Forget history and usage that is too old."""
        with self._transaction():
            self._writer.tidy(now_ms)

    def find(self, tenant: TenantId, prompt_id: PromptId) -> RunRecord | None:
        """Return an ended prompt."""
        with self._read():
            return self._reader.find(tenant, prompt_id)

    def history_count(self, tenant: TenantId) -> int:
        """Count the ended prompts of a tenant."""
        with self._read():
            return self._reader.history_count(tenant)

    def history(self, tenant: TenantId, start: int, count: int) -> list[RunRecord]:
        """Return ended prompts, oldest end first."""
        with self._read():
            return self._reader.history(tenant, start, count)

    def count(self, query: RecordQuery) -> int:
        """Count the ended prompts of a list."""
        with self._read():
            return self._reader.count(query)

    def keys(self, query: RecordQuery, start: int, count: int) -> list[tuple[int, int]]:
        """Return (sort value, key) of a page of a list."""
        with self._read():
            return self._reader.keys(query, start, count)

    def load(self, keys: Sequence[int]) -> dict[int, RunRecord]:
        """Return prompts by key."""
        with self._read():
            return self._reader.load(keys)

    def usage(self, query: UsageQuery, span: UsageSpan) -> UsagePage:
        """Add usage up."""
        with self._read():
            return self._reader.usage(query, span)

    def close(self) -> None:
        """End the connections; the last one merges the write-ahead log into the file."""
        with self._read_lock:
            if self._reading is not self._connection:
                self._reading.close()
        with self._write_lock:
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._write_lock, self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                self._writer.recount()
                raise

    @contextmanager
    def _read(self) -> Iterator[None]:
        with self._read_lock, self._errors():
            yield

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            raise CapacityError(f"The records ({self._name}) cannot be used now: {exc}") from exc
