"""Read whom to call from what was submitted; what cannot be called is refused then, not at the prompt's end."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from yarl import URL

from comfyserverless.core.errors import PromptError

MAX_URL_CHARS = 2_048
_SECRET_CHARS = (8, 256)
_SCHEMES = ("http", "https")
_KEYS = ("url", "secret")
#: What no address holds: blanks and control characters, and a backslash, which some parsers take for a slash.
_BAD = re.compile(r"[\x00-\x20\x7f\\]")
_WITH_USER = re.compile(r"[^/?#]*//[^/?#]*@")
#: The end of a host that some systems read as a number: `127.1`, `2130706433`, `0x7f.1`.
_NUMBER = re.compile(r"(?:\d+|0x[0-9a-f]*)")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")


class WebhookError(PromptError):
    """The webhook of a prompt cannot be called."""


@dataclass(frozen=True, slots=True)
class Target:
    """Whom to call. secret: signs the call instead of the tenant's own; None for that one."""

    url: str = field(repr=False)
    secret: str | None = field(default=None, repr=False)

    @property
    def host(self) -> str:
        """Return the host as it is looked up."""
        return (URL(self.url).raw_host or "").lower().rstrip(".")

    @property
    def shown(self) -> str:
        """Return what logs show: paths and queries of such addresses are often secrets."""
        return str(URL(self.url).origin())


def read_target(value: Any) -> Target | None:
    """Read `extra_data.webhook`: an address, or {"url": ..., "secret": ...}; None if there is none.

    Raises WebhookError. No message repeats the address.
    """
    if value is None:
        return None
    fields = {"url": value} if isinstance(value, str) else value
    if not isinstance(fields, dict):
        raise WebhookError("webhook must be an address, or an object with url and secret")
    unknown = sorted(str(key) for key in fields if key not in _KEYS)
    if unknown:
        raise WebhookError(f"webhook has unknown keys {', '.join(unknown)}; known: {', '.join(_KEYS)}")
    return Target(_checked_url(fields.get("url")), _checked_secret(fields.get("secret")))


def _checked_url(url: Any) -> str:
    if not isinstance(url, str) or not url:
        raise WebhookError("webhook.url must be a text")
    if len(url) > MAX_URL_CHARS:
        raise WebhookError(f"webhook.url is longer than {MAX_URL_CHARS} characters")
    if _BAD.search(url):
        raise WebhookError("webhook.url holds blanks, control characters or backslashes")
    try:
        parsed = URL(url)
        host, port = (parsed.raw_host or "").rstrip("."), parsed.explicit_port
    except ValueError as exc:
        raise WebhookError("webhook.url is not a valid address") from exc
    if parsed.scheme not in _SCHEMES:
        raise WebhookError(f"webhook.url must begin with {' or '.join(f'{each}://' for each in _SCHEMES)}")
    if _WITH_USER.match(url):
        raise WebhookError("webhook.url may not hold a user name or password")
    last = host.rpartition(".")[2].lower()
    if not host or port == 0 or (_NUMBER.fullmatch(last) and not _ADDRESS.fullmatch(host)):
        raise WebhookError("webhook.url has no valid host and port")
    return url


def _checked_secret(secret: Any) -> str | None:
    if secret is None:
        return None
    least, most = _SECRET_CHARS
    if not isinstance(secret, str) or not least <= len(secret) <= most or not secret.isprintable():
        raise WebhookError(f"webhook.secret must be a text of {least} to {most} printable characters")
    return secret
