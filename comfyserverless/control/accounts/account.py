"""Describe one tenant's account: what it may do, and how its tokens are recognised. Pure data.

A token itself is never kept: only its SHA-256 digest. Tokens are made here with 256 random bits, so a fast
digest is as good as a slow one.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field

from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import TenantId

TOKEN_PREFIX = "csl_"
_TOKEN_BYTES = 32
_DIGEST_BYTES = 32
_SHOWN_DIGITS = 12
MOST = 2**53
"""The largest limit: what every number that a limit passes through (SQLite's, JSON's) holds exactly."""

WEIGHTS = (1e-6, 1e6)
"""The smallest and largest weight: service divided by one stays a number that can be told from another."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def new_token() -> str:
    """Make a token; nobody can read it again later."""
    return TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


def token_digest(token: str) -> bytes:
    """Return what is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def token_label(digest: bytes) -> str:
    """Name a token for people: the first digits of its digest."""
    return digest.hex()[:_SHOWN_DIGITS]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tenant may take up; None is no limit.

    max_queued: prompts that wait; max_running: prompts that run at once (more wait); max_request_bytes: body of
    one request, on top of the server's own limit; max_gpu_s_per_day: seconds of service in GPU lanes, and of
    packs' nodes where these may use a GPU, on one UTC day, whatever the weight. Raises ConfigError for a value
    below 1 or above MOST, and for seconds that are not above 0.
    """

    max_queued: int | None = None
    max_running: int | None = None
    max_request_bytes: int | None = None
    max_gpu_s_per_day: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_queued", "max_running", "max_request_bytes"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MOST:
                raise ConfigError(f"{name} is {value!r}; allowed: 1 to {MOST}, or nothing for no limit")
        day_s = self.max_gpu_s_per_day
        if day_s is not None and not 0 < day_s <= MOST:
            raise ConfigError(
                f"max_gpu_s_per_day is {day_s!r}; allowed: above 0 and up to {MOST}, or nothing for no limit"
            )


@dataclass(frozen=True, slots=True)
class Account:
    """One tenant.

    weight: share of service relative to other tenants. models: patterns of `folder key/name` such as
    `loras/alice/*` that the tenant may use (None: all). is_operator: sees every tenant's usage, all console
    lines and workers. tokens: digests. Raises ConfigError for a value out of range.
    """

    tenant: TenantId
    weight: float = 1.0
    limits: Limits = field(default_factory=Limits)
    models: tuple[str, ...] | None = None
    is_operator: bool = False
    is_disabled: bool = False
    tokens: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.tenant) is None:
            raise ConfigError(
                f"tenant name {self.tenant!r}: allowed are up to 63 lower-case letters, digits, _ and -,"
                " beginning with a letter or digit"
            )
        least, most = WEIGHTS
        if not least <= self.weight <= most:
            raise ConfigError(
                f"weight of tenant {self.tenant!r} is {self.weight!r}; allowed: {least:f} to {most:.0f}"
            )
        if any(len(digest) != _DIGEST_BYTES for digest in self.tokens):
            raise ConfigError(f"tenant {self.tenant!r}: a token digest is not a SHA-256 digest")

    def holds(self, digest: bytes) -> bool:
        """Tell whether a token of this digest is one of the account's; compares in constant time."""
        found = False
        for known in self.tokens:
            found |= hmac.compare_digest(known, digest)
        return found
