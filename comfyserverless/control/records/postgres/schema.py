"""Make the tables of the records in PostgreSQL, and let one server at a time use them."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from comfyserverless.control.metering.amounts import AMOUNTS
from comfyserverless.control.records.base import DatabaseAwayError, Execute
from comfyserverless.control.records.postgres.link import SCHEMA
from comfyserverless.core.errors import ConfigError

log = logging.getLogger(__name__)

_OLDEST = 130_000
_LOCK = 0x636F6D6679  # the bytes of `comfy`
_LOCK_WITHIN_S = 6.0
_LOCK_EVERY_S = 0.1

_AMOUNTS = ", ".join(f"{name} BIGINT NOT NULL" for name in AMOUNTS)
#: What each version adds to the one before. Texts that clients choose without a bound are in no index: its
#: entries are limited.
STEPS: Sequence[str] = (
    f"""
    CREATE TABLE prompts (
        key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant TEXT NOT NULL, prompt_id TEXT NOT NULL,
        number DOUBLE PRECISION NOT NULL, status TEXT NOT NULL, client_id TEXT, workflow TEXT,
        crashes INTEGER NOT NULL DEFAULT 0, is_stopped INTEGER NOT NULL DEFAULT 0, created_ms BIGINT NOT NULL,
        started_ms BIGINT, ended_ms BIGINT, ended_order BIGINT, duration_ms BIGINT, request BYTEA NOT NULL,
        result BYTEA
    );
    CREATE UNIQUE INDEX prompts_by_id ON prompts (tenant, prompt_id);
    CREATE INDEX unfinished ON prompts (key) WHERE ended_order IS NULL;
    CREATE UNIQUE INDEX history ON prompts (tenant, ended_order) INCLUDE (key) WHERE ended_order IS NOT NULL;
    CREATE INDEX history_by_created ON prompts (tenant, created_ms, key) INCLUDE (status, workflow)
        WHERE ended_order IS NOT NULL;
    CREATE INDEX history_by_duration ON prompts (tenant, duration_ms, key) INCLUDE (status, workflow)
        WHERE ended_order IS NOT NULL;
    CREATE INDEX history_by_workflow ON prompts (tenant, workflow, created_ms, key)
        INCLUDE (status, duration_ms) WHERE ended_order IS NOT NULL;
    CREATE INDEX history_by_age ON prompts (ended_ms) WHERE ended_order IS NOT NULL;
    CREATE TABLE saves (
        tenant TEXT NOT NULL, prompt_id TEXT NOT NULL, node TEXT NOT NULL, save INTEGER NOT NULL,
        files TEXT NOT NULL
    );
    CREATE INDEX saves_by_prompt ON saves (tenant, prompt_id);
    CREATE TABLE counters (tenant TEXT PRIMARY KEY, counter BIGINT NOT NULL);
    CREATE TABLE usage_totals (
        tenant TEXT NOT NULL, lane TEXT NOT NULL, charged_ns BIGINT NOT NULL, PRIMARY KEY (tenant, lane)
    );
    CREATE TABLE usage_days (
        tenant TEXT COLLATE "C" NOT NULL, day BIGINT NOT NULL, lane TEXT COLLATE "C" NOT NULL,
        function TEXT COLLATE "C" NOT NULL, {_AMOUNTS}, PRIMARY KEY (tenant, day, lane, function)
    );
    CREATE INDEX usage_by_day ON usage_days (day);
    CREATE TABLE usage_prompts (
        prompt BIGINT NOT NULL REFERENCES prompts (key) ON DELETE CASCADE, day BIGINT NOT NULL,
        node TEXT COLLATE "C" NOT NULL, function TEXT COLLATE "C" NOT NULL, model TEXT COLLATE "C" NOT NULL,
        worker TEXT COLLATE "C" NOT NULL, class TEXT COLLATE "C" NOT NULL, lane TEXT COLLATE "C" NOT NULL,
        {_AMOUNTS}, PRIMARY KEY (prompt, day, node, function, model, worker)
    );
    """,
)


def take(run: Execute, shown: str) -> int:
    """Become the one server of a database, bring its tables up to date, and return this server's epoch.

    The lock ends with the session. Raises ConfigError if another server has it, or made newer tables.
    """
    _check(run, shown)
    if not lock(run):
        raise ConfigError(
            f"Another server ({_holder(run)}) uses the database {shown}; stop it, or choose another one with"
            " --database"
        )
    run("BEGIN")
    run(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    run(
        "CREATE TABLE IF NOT EXISTS meta (version INTEGER NOT NULL, epoch BIGINT NOT NULL,"
        " last_commit BIGINT NOT NULL)"
    )
    version, epoch = run("SELECT version, epoch FROM meta").fetchone() or (0, 0)
    if version > len(STEPS):
        run("ROLLBACK")
        raise ConfigError(
            f"The records in {shown} were made by a newer version of comfyserverless (format {version}, this"
            f" one knows {len(STEPS)}); use that one, or another --database"
        )
    for step in STEPS[version:]:
        run(step)
    run("DELETE FROM meta")
    run("INSERT INTO meta VALUES (?, ?, 0)", (len(STEPS), epoch + 1))
    run("COMMIT")
    return int(epoch) + 1


def retake(run: Execute, token: str, shown: str) -> int:
    """Take the lock again after the session was lost; returns the epoch: not ours if another server was here.

    token: of this server's sessions; the lost one may not have ended yet, and is ended first. Raises
    DatabaseAwayError if the lock is not free.
    """
    run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND usename = current_user AND starts_with(application_name, ?)",
        (f"comfyserverless {token} writer ",),
    )
    if not lock(run):
        raise DatabaseAwayError(f"The database {shown} is held by {_holder(run)}")
    return int(run("SELECT epoch FROM meta").fetchone()[0])


def lock(run: Execute) -> bool:
    """Take the lock; False if another session does not let go of it. One that was just killed does."""
    deadline_s = time.monotonic() + _LOCK_WITHIN_S
    while not run("SELECT pg_try_advisory_lock(?)", (_LOCK,)).fetchone()[0]:
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_LOCK_EVERY_S)
    return True


def mark_commit(run: Execute, number: int) -> None:
    """Let a transaction leave its number, so that it can be asked for if the answer to its commit is lost."""
    run("UPDATE meta SET last_commit = ?", (number,))


def last_commit(run: Execute) -> int:
    """Return the number that the last transaction of this epoch has left."""
    return int(run("SELECT last_commit FROM meta").fetchone()[0])


def _check(run: Execute, shown: str) -> None:
    (version,) = run("SELECT CAST(current_setting('server_version_num') AS INTEGER)").fetchone()
    (encoding,) = run("SELECT current_setting('server_encoding')").fetchone()
    if version < _OLDEST:
        raise ConfigError(f"The database {shown} is PostgreSQL {version // 10_000}; it must be 13 or newer")
    if encoding != "UTF8":
        raise ConfigError(f"The database {shown} has the encoding {encoding}; it must be UTF8")
    if run("SELECT current_setting('fsync')").fetchone()[0] != "on":
        log.warning("The database %s runs with fsync off: what it holds may not survive a loss of power", shown)


def _holder(run: Execute) -> str:
    found = run(
        "SELECT application_name, host(client_addr) FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE locktype = 'advisory' AND granted AND pg_locks.database ="
        " (SELECT oid FROM pg_database WHERE datname = current_database())"
        " AND (classid::bigint << 32) | objid::bigint = ?",
        (_LOCK,),
    ).fetchone()
    return "unknown" if found is None else " at ".join(part for part in found if part)
