"""Write what becomes of prompts to the log: whoever watches the terminal, or the page's console, sees it.

Only the outcome of whole runs, one line each; what workers meet they log themselves.
"""

from __future__ import annotations

import logging

from comfyserverless.control.views import (
    Notice,
    RunEnded,
    RunEvent,
    RunFailed,
    RunInterrupted,
    RunStarted,
    RunSucceeded,
)
from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.server.logs import ABOUT

_log = logging.getLogger(__name__)


class Journal:
    """Listen to the engine's notices and log the start and the end of every run."""

    def __init__(self) -> None:
        #: when the runs that have not ended yet began, in Unix milliseconds
        self._started_ms: dict[tuple[TenantId, PromptId], int] = {}

    def on_notice(self, notice: Notice) -> None:
        """Log one notice, if it starts or decides a run."""
        match notice:
            case RunStarted():
                self._started_ms[notice.tenant, notice.run] = notice.at_ms
                _tell(logging.INFO, notice, "starts")
            case RunSucceeded():
                _tell(logging.INFO, notice, f"is done, {self._duration(notice)}")
            case RunInterrupted():
                _tell(logging.INFO, notice, f"was interrupted in node {notice.node} ({notice.node_type})")
            case RunFailed():
                reason = notice.exception_message.strip()
                _tell(logging.ERROR, notice, f"failed in node {notice.node} ({notice.node_type}): {reason}")
            case RunEnded():
                self._started_ms.pop((notice.tenant, notice.run), None)

    def _duration(self, notice: RunSucceeded) -> str:
        started_ms = self._started_ms.get((notice.tenant, notice.run), notice.at_ms)
        return f"{(notice.at_ms - started_ms) / 1000:.2f} s"


def _tell(level: int, event: RunEvent, what: str) -> None:
    """Log a line that the tenant of the run may see."""
    extra = {ABOUT: event.tenant, "tenant": event.tenant, "prompt_id": event.run}
    _log.log(level, "Prompt %s %s", event.run, what, extra=extra)
