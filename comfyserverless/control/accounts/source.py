"""Name what every kind of account storage offers, and read the one that is a file for people (TOML)."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Protocol

from comfyserverless.control.accounts.account import MOST, Account, Limits, token_label
from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import TenantId

_MIB = 1 << 20
_KEYS = frozenset(
    {
        "weight",
        "max_queued",
        "max_running",
        "max_request_mb",
        "gpu_seconds_per_day",
        "models",
        "operator",
        "disabled",
        "token_sha256",
    }
)

Accounts = Mapping[TenantId, Account]


class AccountSource(Protocol):
    """Where accounts come from."""

    def version(self) -> Hashable:
        """Return something that differs when `read` would give something else; cheap."""

    def read(self) -> Accounts:
        """Read all accounts. Raises ConfigError if they cannot be read."""


class AccountFile:
    """Read accounts from a TOML file, one table per tenant: `[tenants.alice]`.

    Keys: token_sha256 (list of hexadecimal digests), weight, max_queued, max_running, max_request_mb,
    gpu_seconds_per_day, models (list of patterns), operator, disabled; all but the tokens have defaults.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def version(self) -> Hashable:
        """Return what changes when the file is replaced or rewritten."""
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def read(self) -> Accounts:
        """Parse the file. Raises ConfigError naming the file, the tenant and the key."""
        try:
            data = tomllib.loads(self._path.read_text(encoding="utf-8"))
        except OSError as exc:
            raise ConfigError(f"--tenants {self._path}: {exc.strerror}") from exc
        except ValueError as exc:  # of TOML, of UTF-8, or of a number with thousands of digits
            raise ConfigError(f"--tenants {self._path}: {exc}") from exc
        except RecursionError as exc:
            raise ConfigError(f"--tenants {self._path}: it is nested too deep") from exc
        unknown = sorted(data.keys() - {"tenants"})
        if unknown:
            raise ConfigError(f"--tenants {self._path}: unknown tables {', '.join(unknown)}; known: tenants")
        tables = data.get("tenants", {})
        if not isinstance(tables, dict):
            raise ConfigError(f"--tenants {self._path}: `tenants` must hold one table per tenant")
        if not tables:  # as a file is for a moment that an editor writes anew
            raise ConfigError(f"--tenants {self._path}: there is no tenant in it")
        try:
            accounts = [_account(TenantId(name), table) for name, table in tables.items()]
            _check_tokens(accounts)
        except ConfigError as exc:
            raise ConfigError(f"--tenants {self._path}: {exc}") from exc
        return {account.tenant: account for account in accounts}


def _check_tokens(accounts: list[Account]) -> None:
    """Refuse a token of two tenants: it would be the first one's, whoever uses it. Raises ConfigError."""
    holders: dict[bytes, TenantId] = {}
    for account in accounts:
        for digest in account.tokens:
            holder = holders.setdefault(digest, account.tenant)
            if holder != account.tenant:
                label = token_label(digest)
                raise ConfigError(f"tenants {holder!r} and {account.tenant!r} have the same token {label}")


def _account(tenant: TenantId, table: Any) -> Account:
    if not isinstance(table, dict):
        raise ConfigError(f"tenant {tenant!r} must be a table")
    unknown = sorted(table.keys() - _KEYS)
    if unknown:
        raise ConfigError(
            f"tenant {tenant!r}: unknown keys {', '.join(unknown)}; known: {', '.join(sorted(_KEYS))}"
        )
    megabytes = _value(tenant, table, "max_request_mb", (int, float))
    return Account(
        tenant,
        float(_value(tenant, table, "weight", (int, float), 1.0)),
        Limits(
            _value(tenant, table, "max_queued", (int,)),
            _value(tenant, table, "max_running", (int,)),
            None if megabytes is None else round(megabytes * _MIB),
            _value(tenant, table, "gpu_seconds_per_day", (int, float)),
        ),
        _texts(tenant, table, "models"),
        bool(_value(tenant, table, "operator", (bool,), False)),
        bool(_value(tenant, table, "disabled", (bool,), False)),
        tuple(_digest(tenant, text) for text in _texts(tenant, table, "token_sha256") or ()),
    )


def _value(
    tenant: TenantId, table: Mapping[str, Any], key: str, kinds: tuple[type, ...], default: Any = None
) -> Any:
    value = table.get(key, default)
    is_flag = isinstance(value, bool) and bool not in kinds
    if value is not default and (is_flag or not isinstance(value, kinds)):
        raise ConfigError(
            f"tenant {tenant!r}: {key} is {value!r}; allowed: {' or '.join(kind.__name__ for kind in kinds)}"
        )
    if isinstance(value, (int, float)) and not abs(value) <= MOST:
        raise ConfigError(f"tenant {tenant!r}: {key} is no number up to {MOST}")
    return value


def _texts(tenant: TenantId, table: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    value = table.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f"tenant {tenant!r}: {key} must be a list of texts")
    return tuple(value)


def _digest(tenant: TenantId, text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:  # the text is not repeated: somebody may have written the token itself
        raise ConfigError(f"tenant {tenant!r}: token_sha256 holds a text that is not hexadecimal") from None
