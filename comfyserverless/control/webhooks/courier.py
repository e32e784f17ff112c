"""Make one attempt at a call: one POST, bounded in time, that follows nothing and reads no answer."""

from __future__ import annotations

import logging
import time
from enum import Enum

import aiohttp

from comfyserverless import __version__
from comfyserverless.control.webhooks.outbox import Call
from comfyserverless.control.webhooks.reach import CheckedResolver, Reach, RefusedAddressError
from comfyserverless.control.webhooks.signing import HEADER, TenantSecrets, signature
from comfyserverless.control.webhooks.target import WebhookError
from comfyserverless.core.errors import ConfigError

log = logging.getLogger(__name__)

_TIMEOUT = aiohttp.ClientTimeout(total=10, connect=5)
_AGAIN = frozenset({408, 425, 429})


class Outcome(Enum):
    """What came of an attempt."""

    DELIVERED = "delivered"
    FAILED = "failed"
    REFUSED = "refused"
    """Another attempt would not help."""


class Courier:
    """Own the HTTP client; opened by the first call."""

    def __init__(self, reach: Reach, secrets: TenantSecrets) -> None:
        self._reach = reach
        self._secrets = secrets
        self._session: aiohttp.ClientSession | None = None

    async def attempt(self, call: Call, body: bytes) -> Outcome:
        """Make the call once. Raises nothing but cancellation."""
        try:
            self._reach.check(call.target)  # what the operator allows may have changed since it was accepted
            status = await self._post(call, body)
        except (WebhookError, ConfigError, aiohttp.InvalidURL) as exc:
            return _note(call, Outcome.REFUSED, str(exc) if not isinstance(exc, aiohttp.InvalidURL) else "")
        except aiohttp.ClientConnectorError as exc:
            is_refused = isinstance(exc.os_error, RefusedAddressError)
            return _note(call, Outcome.REFUSED if is_refused else Outcome.FAILED, str(exc.os_error))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as exc:
            return _note(call, Outcome.FAILED, type(exc).__name__)
        if 200 <= status < 300:
            return Outcome.DELIVERED
        is_passing = status >= 500 or status in _AGAIN
        return _note(call, Outcome.FAILED if is_passing else Outcome.REFUSED, f"status {status}")

    async def close(self) -> None:
        """Close what is open."""
        if self._session is not None:
            await self._session.close()

    async def _post(self, call: Call, body: bytes) -> int:
        secret = call.target.secret or self._secrets.secret_of(call.tenant)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"comfyserverless/{__version__}",
            "X-Comfyserverless-Delivery": call.id,
            HEADER: signature(secret, int(time.time()), body),
        }
        async with self._client().post(
            call.target.url, data=body, headers=headers, allow_redirects=False
        ) as answer:
            return answer.status

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                resolver=CheckedResolver(self._reach), use_dns_cache=False, force_close=True
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=_TIMEOUT,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            )
        return self._session


def _note(call: Call, outcome: Outcome, reason: str) -> Outcome:
    """Log an attempt that failed, without what the address may hold of secrets."""
    log.info("The webhook of prompt %s to %s failed: %s", call.prompt_id, call.target.shown, reason)
    return outcome
