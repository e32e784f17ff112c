"""Take what the node host prints into the log: line by line, and never more than a log can bear.

Packs print what they like. Whatever it is, the host does not wait for us, and we do little for each byte: what
comes faster than the limit is counted and dropped.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path

log = logging.getLogger("comfyserverless.packs")

_CHUNK_BYTES = 1 << 18
_LINE_CHARACTERS = 2_000
_BURST_LINES = 500
_LINES_A_SECOND = 50.0
_TELL_EVERY_S = 5.0
_PREFIX = "[packs] "


class LineBudget:
    """Decide which lines are shown: a burst, and then so many a second."""

    def __init__(self, now_s: float) -> None:
        self._left = float(_BURST_LINES)
        self._at_s = now_s
        self._told_s = now_s
        self.dropped = 0

    def take(self, lines: int, now_s: float) -> int:
        """Return how many of some lines may be shown; the others are counted as dropped."""
        self._left = min(float(_BURST_LINES), self._left + (now_s - self._at_s) * _LINES_A_SECOND)
        self._at_s = now_s
        shown = min(lines, int(self._left))
        self._left -= shown
        self.dropped += lines - shown
        return shown

    def report(self, now_s: float, *, at_once: bool = False) -> int:
        """Return how many lines were dropped since this was told last, 0 if it is not time to tell."""
        if not self.dropped or (not at_once and now_s - self._told_s < _TELL_EVERY_S):
            return 0
        dropped, self.dropped, self._told_s = self.dropped, 0, now_s
        return dropped


class HostOutput:
    """Listen on a unix socket for what hosts print."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._readers: set[asyncio.Task[None]] = set()

    async def start(self, path: Path) -> None:
        """Listen, for processes of this user only."""
        self._server = await asyncio.start_unix_server(self._connected, str(path))
        os.chmod(path, 0o600)

    async def stop(self) -> None:
        """Read nothing any more."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._readers):
            task.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._readers.add(task)
        try:
            await _read(reader)
        except asyncio.CancelledError:
            log.debug("somebody still holds an output of the node packs")  # a process that a pack has started
        finally:
            self._readers.discard(task)
            writer.close()


async def _read(reader: asyncio.StreamReader) -> None:
    budget, rest = LineBudget(time.monotonic()), b""
    while chunk := await reader.read(_CHUNK_BYTES):
        rest = show(rest + chunk, budget)
        if budget.dropped:
            await asyncio.sleep(0)  # others come first: this one has much to say
    if rest:
        show(rest + b"\n", budget)
    _tell(budget, at_once=True)


def show(text: bytes, budget: LineBudget) -> bytes:
    """Log the whole lines of a text as far as the budget allows; returns what has no end yet."""
    end = text.rfind(b"\n") + 1
    if not end:
        return text if len(text) < _CHUNK_BYTES else b""
    shown = budget.take(text.count(b"\n", 0, end), time.monotonic())
    at = 0
    for _ in range(shown):
        stop = text.index(b"\n", at)
        _log(text[at:stop])
        at = stop + 1
    _tell(budget, at_once=False)
    return text[end:]


def _log(line: bytes) -> None:
    text = line.decode("utf-8", "replace").rstrip("\r")
    text = text.rpartition("\r")[2][:_LINE_CHARACTERS]  # of a progress bar the last state
    level, _, rest = text.partition(" ")
    if level in ("WARNING", "ERROR", "CRITICAL") and rest:
        log.log(logging.getLevelNamesMapping()[level], "%s%s", _PREFIX, rest)
    elif text.strip():
        log.info("%s%s", _PREFIX, text.removeprefix("INFO "))


def _tell(budget: LineBudget, *, at_once: bool) -> None:
    dropped = budget.report(time.monotonic(), at_once=at_once)
    if dropped:
        log.warning("%s%d lines are not shown: the node packs print too much", _PREFIX, dropped)
