"""Keep the browser sessions that logins open: an identifier in a cookie stands for the token that was given.

Only digests of identifiers are kept. A session ends with its time, with its token, or by logging out. All
times are Unix seconds, given by the caller.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from comfyserverless.control.accounts.account import token_digest
from comfyserverless.core.errors import CapacityError

LIFETIME_S = 14 * 86_400
MAX_PER_TOKEN = 50
BUSY_S = 0.1
"""How long others that write to the accounts file are waited for: meanwhile the server does nothing else."""

_SESSION_BYTES = 32
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    digest BLOB PRIMARY KEY, token BLOB NOT NULL, expires_s INTEGER NOT NULL
)
"""


class Sessions:
    """Own the sessions of one server. path: the accounts file, or None to forget them at the end.

    Methods raise CapacityError while the file cannot be used.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._connection = sqlite3.connect(":memory:" if path is None else path, isolation_level=None)
        self._connection.execute(_SCHEMA)
        self._connection.execute(f"PRAGMA busy_timeout = {round(BUSY_S * 1000)}")

    def close_all(self) -> None:
        """End the connection to the file; sessions in a file stay valid."""
        self._connection.close()

    def open(self, token: bytes, now_s: float) -> str:
        """Start a session for the token of this digest; returns its secret identifier."""
        identifier = secrets.token_urlsafe(_SESSION_BYTES)
        with self._use() as connection:
            run = connection.execute
            run("DELETE FROM sessions WHERE expires_s <= ?", (now_s,))
            run("INSERT INTO sessions VALUES (?, ?, ?)", (token_digest(identifier), token, now_s + LIFETIME_S))
            run(
                "DELETE FROM sessions WHERE token = ? AND digest NOT IN (SELECT digest FROM sessions"
                " WHERE token = ? ORDER BY expires_s DESC, rowid DESC LIMIT ?)",
                (token, token, MAX_PER_TOKEN),
            )
        return identifier

    def token_of(self, identifier: str, now_s: float) -> bytes | None:
        """Return the digest of the token behind a session; None if there is no such session now."""
        query = "SELECT token FROM sessions WHERE digest = ? AND expires_s > ?"
        with self._use() as connection:
            row = connection.execute(query, (token_digest(identifier), now_s)).fetchone()
        return None if row is None else bytes(row[0])

    def end(self, identifier: str) -> None:
        """Log out; an unknown identifier is ignored."""
        with self._use() as connection:
            connection.execute("DELETE FROM sessions WHERE digest = ?", (token_digest(identifier),))

    @contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._connection
        except sqlite3.Error as exc:
            raise CapacityError("Logins cannot be looked up now; try again in a moment") from exc
