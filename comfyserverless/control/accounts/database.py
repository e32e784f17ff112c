"""Keep accounts in SQLite, where `comfyserverless tenant` writes them and a running server sees them.

Every method is one transaction. The file is readable by its owner only.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path

from comfyserverless.control.accounts.account import Account, Limits
from comfyserverless.control.accounts.source import Accounts
from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import TenantId

FILE_NAME = "accounts.sqlite3"
WAIT_S = 5.0
"""How long others that use the file are waited for."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS accounts (
    tenant TEXT PRIMARY KEY, weight REAL NOT NULL, max_queued INTEGER, max_running INTEGER,
    max_request_bytes INTEGER, models TEXT, is_operator INTEGER NOT NULL, is_disabled INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS tokens (
    digest BLOB PRIMARY KEY, tenant TEXT NOT NULL REFERENCES accounts (tenant), created_s INTEGER NOT NULL
);
"""
#: settings that accounts did not always have; nothing, where a file was made before
_LATER_COLUMNS = {"max_gpu_s_per_day": "REAL"}


def accounts_path(user_folder: Path) -> Path:
    """Return where the accounts of a server lie: beside the users' folders, never inside one."""
    return user_folder / FILE_NAME


def has_accounts(path: Path) -> bool:
    """Tell whether a file holds any account; it is not made if it is missing. Raises ConfigError."""
    if not path.exists():
        return False
    database = AccountDatabase(path)
    try:
        return bool(database.read())
    finally:
        database.close()


class AccountDatabase:
    """Own the connection to one accounts file, made if it is missing. Raises ConfigError if it cannot be.

    wait_s: how long every call may wait for others that write to the file.
    """

    def __init__(self, path: Path, wait_s: float = WAIT_S) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._connection = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)
            self._connection.executescript(_SCHEMA)
            self._add_columns()
            self._connection.execute(f"PRAGMA busy_timeout = {round(wait_s * 1000)}")
        except (OSError, sqlite3.Error) as exc:
            raise ConfigError(f"The accounts file {path} cannot be used: {exc}") from exc

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def version(self) -> Hashable:
        """Return a number that another connection's writes change."""
        with self._errors():
            row = self._connection.execute("PRAGMA data_version").fetchone()
            return int(row[0]), self._connection.total_changes

    def read(self) -> Accounts:
        """Read all accounts, in order of name. Raises ConfigError."""
        tokens: dict[str, list[bytes]] = {}
        with self._transaction("BEGIN") as run:
            for tenant, digest in run.execute("SELECT tenant, digest FROM tokens ORDER BY created_s, digest"):
                tokens.setdefault(tenant, []).append(digest)
            rows = run.execute(
                "SELECT tenant, weight, max_queued, max_running, max_request_bytes, models, is_operator,"
                " is_disabled, max_gpu_s_per_day FROM accounts ORDER BY tenant"
            ).fetchall()
        try:
            return {TenantId(row[0]): _account(row, tuple(tokens.get(row[0], ()))) for row in rows}
        except (TypeError, ValueError) as exc:  # changed by hand: columns take values of any type
            raise ConfigError(f"The accounts file {self._path} holds what is no account: {exc}") from exc

    def _add_columns(self) -> None:
        """Bring a file up to date that was made before there were these settings."""
        with self._transaction() as run:
            present = {row[1] for row in run.execute("PRAGMA table_info(accounts)")}
            for name, kind in _LATER_COLUMNS.items():
                if name not in present:
                    run.execute(f"ALTER TABLE accounts ADD COLUMN {name} {kind}")

    def put(self, account: Account) -> None:
        """Write an account's settings; its tokens are left as they are."""
        limits = account.limits
        models = None if account.models is None else json.dumps(account.models)
        with self._transaction() as run:
            run.execute(
                "INSERT INTO accounts (tenant, weight, max_queued, max_running, max_request_bytes, models,"
                " is_operator, is_disabled, max_gpu_s_per_day) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (tenant) DO UPDATE SET"
                " weight = excluded.weight, max_queued = excluded.max_queued,"
                " max_running = excluded.max_running, max_request_bytes = excluded.max_request_bytes,"
                " models = excluded.models, is_operator = excluded.is_operator,"
                " is_disabled = excluded.is_disabled, max_gpu_s_per_day = excluded.max_gpu_s_per_day",
                (
                    account.tenant,
                    account.weight,
                    limits.max_queued,
                    limits.max_running,
                    limits.max_request_bytes,
                    models,
                    account.is_operator,
                    account.is_disabled,
                    limits.max_gpu_s_per_day,
                ),
            )

    def add_token(self, tenant: TenantId, digest: bytes, *, replaces: bool) -> None:
        """Let a token in; replaces: the tenant's other tokens end. Pre: the account exists."""
        with self._transaction() as run:
            if replaces:
                run.execute("DELETE FROM tokens WHERE tenant = ?", (tenant,))
            run.execute("INSERT INTO tokens VALUES (?, ?, ?)", (digest, tenant, int(time.time())))

    def remove_token(self, tenant: TenantId, label: str) -> int:
        """End the tokens whose digest begins with a label (hexadecimal); returns how many there were."""
        with self._transaction() as run:
            pattern = label.upper() + "%"
            return run.execute(
                "DELETE FROM tokens WHERE tenant = ? AND hex(digest) LIKE ?", (tenant, pattern)
            ).rowcount

    @contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        with self._errors():
            self._connection.execute(begin)
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            raise ConfigError(f"The accounts file {self._path} cannot be used: {exc}") from exc


_Row = tuple[str, float, int | None, int | None, int | None, str | None, int, int, float | None]


def _account(row: _Row, tokens: tuple[bytes, ...]) -> Account:
    tenant, weight, max_queued, max_running, max_request_bytes, models, is_operator, is_disabled, day_s = row
    return Account(
        TenantId(tenant),
        weight,
        Limits(max_queued, max_running, max_request_bytes, day_s),
        None if models is None else tuple(json.loads(models)),
        bool(is_operator),
        bool(is_disabled),
        tokens,
    )
