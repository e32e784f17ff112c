"""Keep the calls that are still to be made, in a SQLite file of their own, so that they survive the server.

A call waits for its prompt first (it has no body yet), and is due afterwards, until it is made or given up.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from comfyserverless.control.records.schema import move_aside
from comfyserverless.control.webhooks.target import Target
from comfyserverless.core.errors import CapacityError
from comfyserverless.core.ids import PromptId, TenantId

FILE_NAME = "outbox.sqlite3"
_TABLE = """
CREATE TABLE IF NOT EXISTS calls (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, prompt_id TEXT NOT NULL, url TEXT NOT NULL, secret TEXT,
    body BLOB, attempts INTEGER NOT NULL DEFAULT 0, due_ms INTEGER
) WITHOUT ROWID
"""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Call:
    """One call. attempts: made so far; due_ms: when the next one is, None while the prompt has not ended."""

    id: str
    tenant: TenantId
    prompt_id: PromptId
    target: Target
    attempts: int = 0
    due_ms: int | None = None

    def due(self, at_ms: int, attempts: int = 0) -> Call:
        """Return the call as it is due at a time."""
        return replace(self, attempts=attempts, due_ms=at_ms)


class Outbox:
    """Own the file and the thread that uses it. path: None to keep calls only while the server runs.

    Nothing is made on the disk before the first call. Methods raise CapacityError if the file cannot be used.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "webhooks")
        self._connection: sqlite3.Connection | None = None

    async def load(self) -> list[Call]:
        """Return the calls that an earlier server has left, in order of their ids."""
        if self._path is None or not self._path.exists():
            return []
        query = "SELECT id, tenant, prompt_id, url, secret, attempts, due_ms FROM calls ORDER BY id"
        rows = await self._run(lambda run: run.execute(query).fetchall())
        return [
            Call(row[0], TenantId(row[1]), PromptId(row[2]), Target(row[3], row[4]), row[5], row[6])
            for row in rows
        ]

    async def add(self, call: Call) -> None:
        """Keep a call that waits for its prompt."""
        target = call.target
        values = (call.id, call.tenant, call.prompt_id, target.url, target.secret)
        statement = "INSERT OR REPLACE INTO calls (id, tenant, prompt_id, url, secret) VALUES (?, ?, ?, ?, ?)"
        await self._run(lambda run: run.execute(statement, values))

    async def set_body(self, call: Call, body: bytes) -> None:
        """Keep the body of a call that is due."""
        values = (body, call.due_ms, call.attempts, call.id)
        statement = "UPDATE calls SET body = ?, due_ms = ?, attempts = ? WHERE id = ?"
        await self._run(lambda run: run.execute(statement, values))

    async def postpone(self, call: Call) -> None:
        """Keep when the next attempt is due."""
        values = (call.due_ms, call.attempts, call.id)
        await self._run(
            lambda run: run.execute("UPDATE calls SET due_ms = ?, attempts = ? WHERE id = ?", values)
        )

    async def body(self, call: Call) -> bytes | None:
        """Return the body of a call; None if the call is gone."""
        query = "SELECT body FROM calls WHERE id = ?"
        row = await self._run(lambda run: run.execute(query, (call.id,)).fetchone())
        return None if row is None else row[0]

    async def remove(self, call: Call) -> None:
        """Forget a call."""
        await self._run(lambda run: run.execute("DELETE FROM calls WHERE id = ?", (call.id,)))

    def close(self) -> None:
        """Write what is under way and end the thread. Blocks."""
        self._thread.submit(self._close).result()
        self._thread.shutdown()

    async def _run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        def do() -> _T:
            try:
                return work(self._open())
            except (sqlite3.Error, OSError) as exc:
                raise CapacityError(f"The webhooks that are due cannot be kept now: {exc}") from exc

        return await asyncio.get_running_loop().run_in_executor(self._thread, do)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._connection = self._connect()
            except sqlite3.DatabaseError as exc:
                if self._path is None or isinstance(exc, sqlite3.OperationalError):
                    raise
                move_aside(self._path)
                self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        place = ":memory:" if self._path is None else self._path
        connection = sqlite3.connect(place, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")  # a commit survives a loss of power
            connection.execute(_TABLE)
        except BaseException:
            connection.close()
            raise
        return connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
