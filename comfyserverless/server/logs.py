"""Keep the last console lines for the page's log panel, and set up logging once."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from aiohttp.http import HttpProcessingError

from comfyserverless import log_lines
from comfyserverless.core.ids import TenantId

CAPACITY_LINES = 300
ABOUT = "about_tenant"
"""Attribute of a log record: the one tenant that a line is about, who may see it."""

Listener = Callable[[dict[str, str], TenantId | None], None]
"""Takes a line and the tenant that it is about."""


class LogTape(logging.Handler):
    """Remember the last lines, and hand each new one to a listener."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(log_lines.TextFormatter("%(message)s"))
        self._lines: deque[tuple[dict[str, str], TenantId | None]] = deque(maxlen=CAPACITY_LINES)
        self._listener: Listener | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record; called by logging, from any thread."""
        stamp = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None).isoformat()
        line = {"t": stamp, "m": self.format(record) + "\n"}
        about: TenantId | None = getattr(record, ABOUT, None)
        self._lines.append((line, about))
        if self._listener is not None:
            self._listener(line, about)

    def listen(self, listener: Listener | None) -> None:
        """Call `listener` with each new line (None: nobody); it must be safe from any thread."""
        self._listener = listener

    def entries(self, only: TenantId | None = None) -> list[dict[str, str]]:
        """Return the kept lines {t: UTC time, m: text}, oldest first; only: those about one tenant."""
        return [line for line, about in tuple(self._lines) if only is None or about == only]

    def text(self, only: TenantId | None = None) -> str:
        """Return the kept lines as one text."""
        return "".join(f"{line['t']} - {line['m']}" for line in self.entries(only))


def tell_noise_shortly(record: logging.LogRecord) -> bool:
    """Make one short line of what the HTTP library tells at length of bytes that are no HTTP.

    Anybody may send some, as scanners do; what they hold (half a token, perhaps) is for no log.
    """
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        record.levelno, record.levelname = logging.INFO, "INFO"
        record.msg, record.args = (
            "Refused what is not HTTP (%s): %s",
            (type(error).__name__, record.getMessage()),
        )
        record.exc_info = record.exc_text = None
        return logging.getLogger().isEnabledFor(logging.INFO)
    return True


def log_message(lines: list[dict[str, str]]) -> dict[str, Any]:
    """Return the data of a `logs` message."""
    return {"entries": lines, "size": None}


def set_up_logging(level: str, kind: str = "text") -> LogTape:
    """Log to standard error and to a tape. level: a name such as INFO; kind: of the lines, `text` or `json`."""
    tape = LogTape()
    log_lines.set_up(level, kind, [tape])
    logging.getLogger("aiohttp.server").addFilter(tell_noise_shortly)
    return tape
