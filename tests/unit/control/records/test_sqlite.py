"""SQLite keeps the contract of records, in a file that is nobody else's."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from comfyserverless.control.records.base import Backend, Opening, Retention
from tests.support.records import life, open_at, waiting
from tests.support.records_contract import Place, RecordsContract


class File(Place):
    """A file of records."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, retention: Retention | None = None, now_ms: int = 0) -> tuple[Backend, Opening]:
        return open_at(self.path, retention, now_ms)

    def rows(self, statement: str) -> list[Any]:
        raw = sqlite3.connect(self.path)
        try:
            return raw.execute(statement).fetchall()
        finally:
            raw.close()


@pytest.fixture
def place(tmp_path: Path) -> File:
    return File(tmp_path / "user/records.sqlite3")


class TestSqlite(RecordsContract):
    """Run the contract on a file."""


def test_records_are_readable_by_their_owner_only(place: File) -> None:
    records, _ = place.open()
    records.commit(life(waiting("a")), 0)
    modes = {each.stat().st_mode & 0o777 for each in place.path.parent.iterdir()}
    assert modes == {0o600}
    records.close()
