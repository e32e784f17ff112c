"""Open the records at the start of a server, whatever state they are in."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

from comfyserverless.control.records.base import Backend, Opening, Retention
from comfyserverless.control.records.schema import move_aside, records_path
from comfyserverless.control.records.sqlite import SqliteRecords
from comfyserverless.core.config import EngineConfig
from comfyserverless.core.errors import CapacityError, ConfigError

log = logging.getLogger(__name__)

MEMORY = "memory"

#: The file is there and can be read, but what is in it is not ours, or not what we wrote.
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})


def is_address(database: str) -> bool:
    """Tell whether `--database` names a database that is run elsewhere, not a file."""
    return database.startswith(("postgresql://", "postgres://"))


def records_file(database: str) -> Path | None:
    """Return the file that `--database` names, None if it names none."""
    return None if database in ("", MEMORY) or is_address(database) else Path(database)


def open_records(config: EngineConfig, now_ms: int) -> tuple[Backend, Opening]:
    """Open what `--database` names. Raises ConfigError if it cannot be."""
    retention = Retention(config.history_limit, config.history_days, config.usage_days)
    if config.database == MEMORY:
        return _open(None, retention, now_ms)
    if is_address(config.database):
        return _open_address(config.database, retention, now_ms)
    return open_file(records_file(config.database) or records_path(config.folders.user), retention, now_ms)


def _open_address(address: str, retention: Retention, now_ms: int) -> tuple[Backend, Opening]:
    """Open a database that is run elsewhere; nothing else imports its driver. Raises ConfigError."""
    try:
        from comfyserverless.control.records.postgres.backend import open_database
    except ImportError as exc:
        raise ConfigError(
            "--database postgresql://...: this needs the driver psycopg, which cannot be imported here"
            f" ({' '.join(str(exc).split())}); install it with `pip install 'comfyserverless[postgres]'`"
        ) from exc
    return open_database(address, retention, now_ms)


def open_file(path: Path, retention: Retention, now_ms: int) -> tuple[SqliteRecords, Opening]:
    """Open a file; one that is damaged is moved aside first, and the log says so. Raises ConfigError."""
    try:
        return _open(path, retention, now_ms)
    except (sqlite3.Error, CapacityError) as exc:
        cause = exc.__cause__ if isinstance(exc, CapacityError) else exc
        if not _is_damage(cause):
            raise ConfigError(f"The records file {path} cannot be used: {cause}") from exc
        log.error(
            "The records file %s is damaged (%s). It was moved to %s, and an empty one takes its place:"
            " what was waiting and history are in there",
            path,
            cause,
            move_aside(path),
        )
        return _open(path, retention, now_ms)
    except OSError as exc:
        raise ConfigError(f"The records file {path} cannot be used: {exc.strerror}") from exc


def _open(path: Path | None, retention: Retention, now_ms: int) -> tuple[SqliteRecords, Opening]:
    records = SqliteRecords(path, retention)
    try:
        return records, records.open(now_ms)
    except BaseException:
        records.close()
        raise


def _is_damage(error: BaseException | None) -> bool:
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    code = getattr(error, "sqlite_errorcode", None)  # our own check raises without one
    return code is None or code & 0xFF in _DAMAGE
