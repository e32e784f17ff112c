"""Hold one connection to the database, and make it again when it was lost."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import psycopg

from comfyserverless.control.records.base import DatabaseAwayError, Rows
from comfyserverless.control.records.postgres.address import Address, session_name
from comfyserverless.control.records.postgres.text import escape_texts
from comfyserverless.core.errors import CapacityError

SCHEMA = "comfyserverless"
_CALM_S = 0.5
"""So long after a failure nobody tries to connect again: a crowd that asks does not wait one by one."""

_HINT = re.compile(r" INDEXED BY \w+")
_SETTINGS = (
    f"SET search_path = {SCHEMA}",
    "SET client_min_messages = warning",
    "SET lock_timeout = '10s'",
    # A commit survives a loss of power, also where the database is set to be faster than that.
    "SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') IN ('off', 'local')",
    # The database lets go of the lock of a server whose machine is gone.
    "SET tcp_keepalives_idle = 10",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 3",
)
_READ_ONLY = "SET default_transaction_read_only = on"


class Link:
    """One connection. token: tells the sessions of this server from others; is_reader: it changes nothing."""

    def __init__(self, address: Address, token: str, *, is_reader: bool) -> None:
        self._address = address
        self._name = session_name(token, is_reader=is_reader)
        self._settings = (*_SETTINGS, _READ_ONLY) if is_reader else _SETTINGS
        self._connection: psycopg.Connection[Any] | None = None
        self._failed_s = float("-inf")
        self._is_closed = False

    @property
    def is_lost(self) -> bool:
        """Tell whether there is no connection."""
        return self._connection is None or self._connection.closed

    @property
    def is_in_transaction(self) -> bool:
        """Tell whether a transaction is open."""
        idle = psycopg.pq.TransactionStatus.IDLE
        return self._connection is not None and self._connection.info.transaction_status != idle

    def connect(self) -> None:
        """Connect, if there is no connection. Raises DatabaseAwayError."""
        if not self.is_lost:
            return
        if self._is_closed:
            raise CapacityError(f"The database {self._address.shown} cannot be used now: the server is ending")
        if time.monotonic() < self._failed_s + _CALM_S:
            raise DatabaseAwayError(f"The database {self._address.shown} cannot be reached now")
        self._failed_s = time.monotonic()
        self.drop()
        with self.errors():
            connection = psycopg.connect(
                **self._address.settings, autocommit=True, application_name=self._name, client_encoding="UTF8"
            )
            try:
                escape_texts(connection)
                for statement in self._settings:
                    connection.execute(statement.encode())
            except BaseException:
                connection.close()
                raise
        self._connection = connection
        self._failed_s = float("-inf")

    def run(self, sql: str, values: Sequence[Any] = (), /) -> Rows:
        """Run a statement; a `base.Execute`. Raises psycopg.Error."""
        if self._connection is None:
            raise psycopg.OperationalError("there is no connection")
        return self._connection.execute(_translated(sql), values or None)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Send statements without waiting for each one; when this ends they have been carried out."""
        if self._connection is None or not psycopg.Pipeline.is_supported():
            yield
            return
        with self._connection.pipeline():
            yield

    def close(self) -> None:
        """End the connection for good."""
        self._is_closed = True
        self.drop()

    def drop(self) -> None:
        """End the connection; it can be made again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what may pass into a CapacityError; what the data is to blame for stays what it is."""
        said = None
        try:
            yield
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded):
            raise
        except psycopg.Error as exc:
            said = self._address.hide(exc)
        if said is None:
            return
        # Not chained: what psycopg raises may hold the address with its password.
        if self.is_lost:
            raise DatabaseAwayError(f"The database {self._address.shown} cannot be reached now: {said}")
        raise CapacityError(f"The database {self._address.shown} cannot be used now: {said}")


@lru_cache(maxsize=256)
def _translated(sql: str) -> bytes:
    """Return a statement with psycopg's marks for values, and without hints that are SQLite's."""
    return _HINT.sub("", sql).replace("?", "%s").encode()
