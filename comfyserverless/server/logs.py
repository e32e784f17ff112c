"""Keep the last console lines for the page's log panel, and set up logging once."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

CAPACITY_LINES = 300


class LogTape(logging.Handler):
    """Remember the last lines, and hand each new one to a listener."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))
        self._lines: deque[dict[str, str]] = deque(maxlen=CAPACITY_LINES)
        self._listener: Callable[[dict[str, str]], None] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record; called by logging, from any thread."""
        stamp = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None).isoformat()
        line = {"t": stamp, "m": self.format(record) + "\n"}
        self._lines.append(line)
        if self._listener is not None:
            self._listener(line)

    def listen(self, listener: Callable[[dict[str, str]], None] | None) -> None:
        """Call `listener` with each new line (None: nobody); it must be safe from any thread."""
        self._listener = listener

    def entries(self) -> list[dict[str, str]]:
        """Return the kept lines {t: UTC time, m: text}, oldest first."""
        return list(self._lines)

    def text(self) -> str:
        """Return the kept lines as one text."""
        return "".join(f"{line['t']} - {line['m']}" for line in self.entries())


def log_message(lines: list[dict[str, str]]) -> dict[str, Any]:
    """Return the data of a `logs` message."""
    return {"entries": lines, "size": None}


def set_up_logging(level: str) -> LogTape:
    """Log to standard error and to a tape; level: a name such as INFO."""
    tape = LogTape()
    console = logging.StreamHandler(sys.stderr)
    console.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[console, tape])
    return tape
