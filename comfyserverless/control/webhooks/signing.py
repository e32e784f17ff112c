"""Sign webhook calls, so that who is called can tell them from others: HMAC-SHA256 over time and body.

Every tenant has a secret of its own, which is derived from one key in a file of the server.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import secrets
from pathlib import Path

from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import TenantId

HEADER = "X-Comfyserverless-Signature"
FOLDER = "__webhooks"
"""Below the user folder; names that begin so are no user's (as in ComfyUI)."""

_KEY_FILE = "key"
_KEY_BYTES = 32
_PREFIX = "whsec_"


def signature(secret: str, at_s: int, body: bytes) -> str:
    """Return the value of the header. at_s: Unix seconds, which who is called should compare with its clock."""
    digest = hmac.new(secret.encode(), f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={digest}"


class TenantSecrets:
    """Know the tenants' secrets. folder: of the webhooks; the key in it is made when first needed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _KEY_FILE
        self._key: bytes | None = None

    def secret_of(self, tenant: TenantId) -> str:
        """Return a tenant's secret; the same as long as the key is kept. Raises ConfigError."""
        if self._key is None:
            try:
                self._key = self._read()
            except OSError as exc:
                raise ConfigError(f"The key of webhooks {self._path} cannot be used: {exc.strerror}") from exc
        digest = hmac.new(self._key, f"webhooks of {tenant}".encode(), hashlib.sha256).digest()
        return _PREFIX + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def _read(self) -> bytes:
        if not self._path.exists():
            self._make()
        key = self._path.read_bytes()
        if len(key) != _KEY_BYTES:
            raise ConfigError(f"The key of webhooks {self._path} does not have {_KEY_BYTES} bytes")
        return key

    def _make(self) -> None:
        """Make the key; whoever is first wins, and nobody sees half of it."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self._path.with_name(f"{_KEY_FILE}.{secrets.token_hex(4)}")
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        try:
            with contextlib.suppress(FileExistsError):
                os.link(temporary, self._path)
        finally:
            os.unlink(temporary)
