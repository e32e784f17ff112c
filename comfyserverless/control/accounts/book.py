"""Look accounts up while the server runs; changes made outside are seen at the next look."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable

from comfyserverless.control.accounts.account import Account, token_digest
from comfyserverless.control.accounts.source import Accounts, AccountSource
from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import TenantId

_log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 1.0
"""How long after a failure the accounts are left as they were: a failure may take its time."""

_MAX_TOKEN_CHARS = 1024
_START_BYTES = 4


class AccountBook:
    """Hold the accounts as they were last read. Raises ConfigError if they cannot be read at first."""

    def __init__(self, source: AccountSource) -> None:
        self._source = source
        self._version: Hashable = source.version()
        self._accounts: Accounts = source.read()
        #: start of a digest -> the accounts with such a token; the rest is compared in constant time.
        self._by_start: dict[bytes, list[Account]] = {}
        #: when the next look may be, monotonic; what the last one failed of, None if it did not
        self._next_look_s = 0.0
        self._failure: str | None = None
        self._index()

    def accounts(self) -> Accounts:
        """Return all accounts; if they cannot be read any more, as they were."""
        if self._failure is not None and time.monotonic() < self._next_look_s:
            return self._accounts
        try:
            self._look()
        except ConfigError as exc:
            self._next_look_s = time.monotonic() + _LOOK_AGAIN_S
            if str(exc) != self._failure:
                self._failure = str(exc)
                _log.error("The accounts cannot be read; they stay as they were: %s", exc)
        else:
            self._failure = None
        return self._accounts

    def _look(self) -> None:
        version = self._source.version()
        if version != self._version:
            self._accounts = self._source.read()
            self._version = version
            self._index()

    def find(self, tenant: TenantId) -> Account | None:
        """Return an account that is not disabled."""
        account = self.accounts().get(tenant)
        return None if account is None or account.is_disabled else account

    def authenticate(self, token: str) -> Account | None:
        """Return whose token this is; None if it is nobody's, or the account is disabled."""
        if len(token) > _MAX_TOKEN_CHARS:
            return None
        return self.holder(token_digest(token))

    def holder(self, digest: bytes) -> Account | None:
        """Return whose token has this digest; None as in `authenticate`."""
        self.accounts()
        candidates = self._by_start.get(digest[:_START_BYTES], ())
        return next((each for each in candidates if each.holds(digest) and not each.is_disabled), None)

    def _index(self) -> None:
        self._by_start = {}
        for account in self._accounts.values():
            for digest in account.tokens:
                self._by_start.setdefault(digest[:_START_BYTES], []).append(account)
