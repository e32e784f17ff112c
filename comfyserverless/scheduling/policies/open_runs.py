"""Decide how many runs are open at once, and of whom.

A tenant has as many runs open as there are workers, and all tenants have them side by side. A prompt with a
higher priority than everything that its tenant has running begins at once: its invocations then go before
theirs; a few such may be open at a time, since each keeps results in memory. With the policy `fifo` there are
as many runs open as workers over all tenants, in order of arrival, as on a server with one queue.
"""

from __future__ import annotations

from dataclasses import dataclass

from comfyserverless.scheduling.config import PolicyName

MOST_URGENT = 4
"""So many runs more than there are workers a tenant may have open, if each is more urgent than those before."""


@dataclass(frozen=True, slots=True)
class Line:
    """What a tenant has running, and its next prompt.

    priority: of the next one; highest_running: the highest of what runs, None if nothing does.
    """

    running: int
    priority: int
    highest_running: int | None

    def is_urgent(self) -> bool:
        """Tell whether the next prompt need not wait for those that run."""
        return self.highest_running is not None and self.priority > self.highest_running


def is_one_queue(policy: PolicyName) -> bool:
    """Tell whether prompts of all tenants begin in one order of arrival."""
    return policy == "fifo"


def most_running(line: Line, policy: PolicyName, slots: int, running_of_all: int) -> int:
    """Return how many runs a tenant may have open now. slots: how many workers there are."""
    if is_one_queue(policy):
        return line.running + max(0, slots - running_of_all)
    return slots + MOST_URGENT if line.is_urgent() else slots
