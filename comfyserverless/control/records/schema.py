"""Connect to the SQLite file of the records: its tables, how it is kept safe, and how damage is found."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from comfyserverless.control.metering.amounts import AMOUNTS
from comfyserverless.core.errors import ConfigError

FILE_NAME = "records.sqlite3"
VERSION = 3

_BUSY_S = 10.0
_CHECK_S = 2.0
_CHECK_EVERY_STEPS = 20_000
_COMPANIONS = ("-wal", "-shm", "-journal")
_TABLES = """
CREATE TABLE prompts (
    key INTEGER PRIMARY KEY, tenant TEXT NOT NULL, prompt_id TEXT NOT NULL, number REAL NOT NULL,
    status TEXT NOT NULL, client_id TEXT, workflow TEXT, crashes INTEGER NOT NULL DEFAULT 0,
    is_stopped INTEGER NOT NULL DEFAULT 0, created_ms INTEGER NOT NULL, started_ms INTEGER, ended_ms INTEGER,
    ended_order INTEGER, duration_ms INTEGER, request BLOB NOT NULL, result BLOB
);
CREATE UNIQUE INDEX prompts_by_id ON prompts (tenant, prompt_id);
CREATE INDEX unfinished ON prompts (key) WHERE ended_order IS NULL;
CREATE UNIQUE INDEX history ON prompts (tenant, ended_order) WHERE ended_order IS NOT NULL;
CREATE INDEX history_by_created ON prompts (tenant, created_ms, status, workflow, ended_order)
    WHERE ended_order IS NOT NULL;
CREATE INDEX history_by_duration ON prompts (tenant, duration_ms, status, workflow, ended_order)
    WHERE ended_order IS NOT NULL;
CREATE INDEX history_by_age ON prompts (ended_ms) WHERE ended_order IS NOT NULL;
CREATE TABLE saves (
    tenant TEXT NOT NULL, prompt_id TEXT NOT NULL, node TEXT NOT NULL, save INTEGER NOT NULL,
    files TEXT NOT NULL, PRIMARY KEY (tenant, prompt_id, node, save)
) WITHOUT ROWID;
CREATE TABLE counters (tenant TEXT PRIMARY KEY, counter INTEGER NOT NULL) WITHOUT ROWID;
"""
_AMOUNTS = ", ".join(f"{name} INTEGER NOT NULL" for name in AMOUNTS)
_USAGE_TABLES = f"""
CREATE TABLE usage_totals (
    tenant TEXT NOT NULL, lane TEXT NOT NULL, charged_ns INTEGER NOT NULL, PRIMARY KEY (tenant, lane)
) WITHOUT ROWID;
CREATE TABLE usage_days (
    tenant TEXT NOT NULL, day INTEGER NOT NULL, lane TEXT NOT NULL, function TEXT NOT NULL, {_AMOUNTS},
    PRIMARY KEY (tenant, day, lane, function)
) WITHOUT ROWID;
CREATE INDEX usage_by_day ON usage_days (day);
CREATE TABLE usage_prompts (
    prompt INTEGER NOT NULL REFERENCES prompts (key) ON DELETE CASCADE, day INTEGER NOT NULL,
    node TEXT NOT NULL, function TEXT NOT NULL, model TEXT NOT NULL, worker TEXT NOT NULL,
    class TEXT NOT NULL, lane TEXT NOT NULL, {_AMOUNTS},
    PRIMARY KEY (prompt, day, node, function, model, worker)
) WITHOUT ROWID;
"""
_TAKE_OVER_1 = """
INSERT INTO usage_totals SELECT tenant, lane, CAST(ROUND(service_s * 1e9) AS INTEGER) FROM usage;
DROP TABLE usage;
"""
_WORKFLOW_INDEX = """
CREATE INDEX history_by_workflow ON prompts (tenant, workflow, created_ms, status, duration_ms, ended_order)
    WHERE ended_order IS NOT NULL;
"""
_STEPS = {
    0: _TABLES + _USAGE_TABLES + _WORKFLOW_INDEX,
    1: _USAGE_TABLES + _TAKE_OVER_1 + _WORKFLOW_INDEX,
    2: _WORKFLOW_INDEX,
}
"""What makes the present tables of those of an older version (0: of none)."""


def records_path(user_folder: Path) -> Path:
    """Return where the records of a server lie: beside the users' folders, never inside one."""
    return user_folder / FILE_NAME


def connect_memory() -> sqlite3.Connection:
    """Open a database that ends with its connection."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _prepare(connection)
    return connection


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open a file to write, made if it is missing. Raises DatabaseError if damaged, OSError, ConfigError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # a commit survives a loss of power
        _check(connection)
        _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a file that a writer has opened before, only to read."""
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _check(connection: sqlite3.Connection) -> None:
    """Look for damage, in a large file for as long as a start may take. Raises DatabaseError."""
    deadline_s = time.monotonic() + _CHECK_S
    connection.set_progress_handler(lambda: time.monotonic() > deadline_s, _CHECK_EVERY_STEPS)
    try:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as exc:
        if exc.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        found = "ok"
    finally:
        connection.set_progress_handler(None, 0)
    if found != "ok":
        raise sqlite3.DatabaseError(found)


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the tables, or bring those of an older version up to date: all of it or nothing.

    Raises ConfigError for those of a newer version.
    """
    connection.execute("PRAGMA foreign_keys = ON")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise ConfigError(
            f"The records were made by a newer version of comfyserverless (format {version}, this one knows"
            f" {VERSION}); use that one, or another --user-directory"
        )
    if version < VERSION:
        connection.executescript(f"BEGIN; {_STEPS[version]} PRAGMA user_version = {VERSION}; COMMIT;")


def move_aside(path: Path) -> Path:
    """Give a damaged file, with what belongs to it, another name; returns that."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    for suffix in ("", *_COMPANIONS):
        part = Path(f"{path}{suffix}")
        if part.exists():
            part.rename(f"{aside}{suffix}")
    return aside
