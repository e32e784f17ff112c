"""Write log records as lines: of text for people, or of JSON for machines. Both towers use it.

What a line is about (a prompt, an invocation, a worker) is said by whoever logs (`extra`), or holds for all
that is logged within a block (`about`), a task begun in it, or a whole process (`set_up`). Lines of JSON have a
bounded length, so that those of several processes never mix. Access tokens, and passwords of addresses, are
blacked out in any line.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

FORMATS = ("text", "json")
FIELDS = ("prompt_id", "tenant", "invocation", "worker")
"""Attributes of a log record, and keys of its JSON, that say what a line is about."""

LINE_BYTES = 4_000
"""The longest line: what a pipe takes at once (4,096) whoever else writes to it."""

_PACKAGE = "comfyserverless"
_TOKEN = re.compile(r"csl_[A-Za-z0-9_-]{8,}")
_HIDDEN = "csl_[hidden]"
_PASSWORD = re.compile(r"(://[^\s:@/]*):[^\s@/]+@")
_LEAST_CHARACTERS = 100

_about: ContextVar[Mapping[str, str]] = ContextVar("about", default={})  # noqa: B039 - never written to


@contextmanager
def about(**fields: str) -> Iterator[None]:
    """Say what all is about that is logged within the block, and in tasks that begin there; see FIELDS."""
    token = _about.set({**_about.get(), **fields})
    try:
        yield
    finally:
        _about.reset(token)


def redact(text: str) -> str:
    """Return a text without the access tokens, and passwords of addresses, in it."""
    text = _TOKEN.sub(_HIDDEN, text) if "csl_" in text else text
    return _PASSWORD.sub(r"\1:[hidden]@", text) if "://" in text else text


class TextFormatter(logging.Formatter):
    """Write a record for people: time, level, text, and a traceback below it."""

    def __init__(self, pattern: str = "%(asctime)s %(levelname)s %(message)s") -> None:
        super().__init__(pattern)

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of one record."""
        return redact(super().format(record))


class JsonFormatter(logging.Formatter):
    """Write a record as one JSON object in one line of ASCII.

    Keys: time (UTC, ISO 8601), level, logger, message, those of FIELDS that are known, and exception with the
    traceback. always: fields of every line. What is too long loses the start of its traceback, then the end of
    its message.
    """

    def __init__(self, always: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._always = dict(always or {})

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of one record."""
        line: dict[str, str] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        known: dict[str, Any] = {**self._always, **_about.get(), **record.__dict__}
        line |= {name: redact(str(known[name])) for name in FIELDS if known.get(name) is not None}
        trace = self._trace(record)
        if trace:
            line["exception"] = trace
        return _within(line)

    def _trace(self, record: logging.LogRecord) -> str:
        parts = [self.formatException(record.exc_info)] if record.exc_info and record.exc_info[0] else []
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        return redact("\n".join(parts))


def _within(line: dict[str, str]) -> str:
    """Return the JSON of a line, cut to the bound: a character cut off is at least one byte less."""
    for name, keeps_end in (("exception", True), ("message", False)):
        text = json.dumps(line)
        if len(text) <= LINE_BYTES:
            return text
        value = line.get(name, "")
        left = max(_LEAST_CHARACTERS, len(value) - (len(text) - LINE_BYTES) - 8)
        if left < len(value):
            line[name] = f"…{value[-left:]}" if keeps_end else f"{value[:left]}…"
    return json.dumps(line)


def set_up(
    level: str, kind: str, more: Sequence[logging.Handler] = (), always: Mapping[str, str] | None = None
) -> None:
    """Log to standard error from now on, in place of what was set up before.

    level: of the product's own lines, such as DEBUG; the libraries' are never below INFO: what some tell there
    holds the tokens of links. kind: one of FORMATS; more: further handlers; always: what all lines of this
    process are about. What ends a thread or the process unexpectedly, and warnings, are logged, too.
    """
    console = logging.StreamHandler(sys.stderr)
    console.setFormatter(JsonFormatter(always) if kind == "json" else TextFormatter())
    number = logging.getLevelNamesMapping()[level]
    logging.basicConfig(level=max(number, logging.INFO), handlers=[console, *more], force=True)
    logging.getLogger(_PACKAGE).setLevel(number)
    logging.captureWarnings(kind == "json")
    if kind == "json":
        sys.excepthook = _log_end
        threading.excepthook = _log_thread_end


def _log_end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    logging.getLogger(_PACKAGE).critical("The process ends unexpectedly", exc_info=(kind, error, trace))


def _log_thread_end(end: threading.ExceptHookArgs) -> None:
    if end.exc_value is None or issubclass(end.exc_type, SystemExit):
        return
    name = "?" if end.thread is None else end.thread.name
    logging.getLogger(_PACKAGE).critical(
        "Thread %s ends unexpectedly", name, exc_info=(end.exc_type, end.exc_value, end.exc_traceback)
    )
