"""Write what becomes of prompts to the log: whoever watches the terminal, or the page's console, sees it.

Only the outcome of whole runs, one line each; what workers meet they log themselves.
"""

from __future__ import annotations

import logging

from comfyserverless.control.views import Notice, RunEnded, RunFailed, RunInterrupted, RunStarted, RunSucceeded
from comfyserverless.core.ids import PromptId

_log = logging.getLogger(__name__)


class Journal:
    """Listen to the engine's notices and log the start and the end of every run."""

    def __init__(self) -> None:
        #: when the runs that have not ended yet began, in Unix milliseconds
        self._started_ms: dict[PromptId, int] = {}

    def on_notice(self, notice: Notice) -> None:
        """Log one notice, if it starts or decides a run."""
        match notice:
            case RunStarted():
                self._started_ms[notice.run] = notice.at_ms
                _log.info("Prompt %s starts", notice.run)
            case RunSucceeded():
                _log.info("Prompt %s is done, %s", notice.run, self._duration(notice.run, notice.at_ms))
            case RunInterrupted():
                _log.info(
                    "Prompt %s was interrupted in node %s (%s)", notice.run, notice.node, notice.node_type
                )
            case RunFailed():
                _log.error(
                    "Prompt %s failed in node %s (%s): %s",
                    notice.run,
                    notice.node,
                    notice.node_type,
                    notice.exception_message.strip(),
                )
            case RunEnded():
                self._started_ms.pop(notice.run, None)

    def _duration(self, run: PromptId, ended_ms: int) -> str:
        return f"{(ended_ms - self._started_ms.get(run, ended_ms)) / 1000:.2f} s"
