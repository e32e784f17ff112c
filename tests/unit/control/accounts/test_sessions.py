"""Sessions stand for a token until they end."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from comfyserverless.control.accounts.account import token_digest
from comfyserverless.control.accounts.sessions import LIFETIME_S, MAX_PER_TOKEN, Sessions
from comfyserverless.core.errors import CapacityError

TOKEN = token_digest("token")


def test_session_stands_for_its_token_until_its_time_is_over() -> None:
    sessions = Sessions()
    identifier = sessions.open(TOKEN, 100.0)
    assert sessions.token_of(identifier, 100.0 + LIFETIME_S - 1) == TOKEN
    assert sessions.token_of(identifier, 100.0 + LIFETIME_S) is None
    assert sessions.token_of("other", 100.0) is None
    sessions.close_all()


def test_logging_out_ends_one_session_only() -> None:
    sessions = Sessions()
    first, second = sessions.open(TOKEN, 1.0), sessions.open(TOKEN, 1.0)
    sessions.end(first)
    assert sessions.token_of(first, 2.0) is None
    assert sessions.token_of(second, 2.0) == TOKEN
    sessions.close_all()


def test_oldest_session_of_a_token_gives_way() -> None:
    sessions = Sessions()
    opened = [sessions.open(TOKEN, float(at)) for at in range(MAX_PER_TOKEN + 1)]
    assert sessions.token_of(opened[0], 60.0) is None
    assert sessions.token_of(opened[1], 60.0) == TOKEN
    sessions.close_all()


def test_session_survives_a_restart_and_is_not_written_down(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    before = Sessions(path)
    identifier = before.open(TOKEN, 1.0)
    before.close_all()
    after = Sessions(path)
    assert after.token_of(identifier, 2.0) == TOKEN
    after.close_all()
    assert identifier.encode() not in path.read_bytes()


def test_file_that_others_hold_is_not_waited_for_long(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    sessions = Sessions(path)
    identifier = sessions.open(TOKEN, 1.0)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    calls = (
        lambda: sessions.open(TOKEN, 2.0),
        lambda: sessions.token_of(identifier, 2.0),
        lambda: sessions.end(identifier),
    )
    (waits_ms,) = sessions._connection.execute("PRAGMA busy_timeout").fetchone()
    assert waits_ms <= 100  # the default of SQLite's client is 5,000
    for call in calls:
        with pytest.raises(CapacityError, match="again"):
            call()
    other.close()
    assert sessions.token_of(identifier, 2.0) == TOKEN
    sessions.close_all()
