"""Read the address of a database, and keep its password out of everything that is shown."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from comfyserverless.core.errors import ConfigError

_SECRETS = ("password", "sslpassword", "oauth_client_secret", "passfile")
_HIDDEN = "***"
_SHORTEST_SECRET = 3
_LONGEST_NAME_BYTES = 63

#: What a connection gets unless the address says otherwise: a dead network is noticed within seconds, and a
#: copy that cannot be written is not used.
_DEFAULTS: Mapping[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "target_session_attrs": "read-write",
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is. shown: for people, without secrets; settings: for psycopg, secrets among them."""

    shown: str
    settings: Mapping[str, Any]

    def hide(self, text: object) -> str:
        """Return a message in one line, without the secrets of this address."""
        said = " ".join(str(text).split())
        for name in _SECRETS:
            secret = str(self.settings.get(name) or "")
            if len(secret) >= _SHORTEST_SECRET:
                said = said.replace(secret, _HIDDEN)
        return said

    def __repr__(self) -> str:
        return f"Address({self.shown})"


def read_address(text: str) -> Address:
    """Take an address apart, as libpq reads it. Raises ConfigError, which does not repeat the address."""
    try:
        found = conninfo_to_dict(text)
    except psycopg.Error:
        found = None
    if found is None:  # outside the handler: what psycopg says may hold the password
        raise ConfigError(
            "--database: this is no address of a PostgreSQL database; expected postgresql://USER@HOST:PORT/NAME,"
            " with special characters of its parts written as %XX"
        )
    settings = {**_DEFAULTS, **{key: value for key, value in found.items() if value is not None}}
    return Address(_shown(found), settings)


def _shown(found: Mapping[str, Any]) -> str:
    user = f"{found['user']}@" if found.get("user") else ""
    port = f":{found['port']}" if found.get("port") else ""
    return f"postgresql://{user}{found.get('host') or ''}{port}/{found.get('dbname') or ''}"


def session_name(token: str, *, is_reader: bool) -> str:
    """Name a session of this process in the database, so that people see whose it is."""
    name = f"comfyserverless {token} {'reader' if is_reader else 'writer'}"
    return f"{name} {os.getpid()}@{socket.gethostname()}"[:_LONGEST_NAME_BYTES]
