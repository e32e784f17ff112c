"""Count what was used, in whole nanoseconds: sums are the same in whatever order and groups they are made.

What is charged is the sum of its parts, for one stay in a lane as for a year of them: load + compute +
transfer + untimed. The time in the queue is told and never charged; a wait for other calls is told, and is part
of untimed where it is charged, because others wanted the lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from comfyserverless.core.ids import NodeId, PromptId, TenantId
from comfyserverless.core.messages import Timing

_NS = 1_000_000_000
_LONGEST_S = 1e7
_DAY_MS = 86_400_000


@dataclass(slots=True)
class Amounts:
    """What stays of invocations in lanes have used; a stay is one call, or one try of it.

    untimed_ns: charged, but for no work that was measured: what counts of the time of calls that ended with
    their worker, and of waits.
    """

    calls: int = 0
    queued_ns: int = 0
    load_ns: int = 0
    compute_ns: int = 0
    transfer_ns: int = 0
    waited_ns: int = 0
    untimed_ns: int = 0

    @property
    def charged_ns(self) -> int:
        """Return what the tenant is charged for, whatever its weight."""
        return self.load_ns + self.compute_ns + self.transfer_ns + self.untimed_ns

    def add(self, other: Amounts) -> None:
        """Add what others have used."""
        self.calls += other.calls
        self.queued_ns += other.queued_ns
        self.load_ns += other.load_ns
        self.compute_ns += other.compute_ns
        self.transfer_ns += other.transfer_ns
        self.waited_ns += other.waited_ns
        self.untimed_ns += other.untimed_ns

    def values(self) -> tuple[int, ...]:
        """Return the numbers in the order of AMOUNTS."""
        return (
            self.calls,
            self.queued_ns,
            self.load_ns,
            self.compute_ns,
            self.transfer_ns,
            self.waited_ns,
            self.untimed_ns,
        )

    def shown(self) -> dict[str, int | float]:
        """Return what clients are shown: calls, and seconds by name."""
        seconds = {
            f"{name.removesuffix('_ns')}_s": seconds_of(value)
            for name, value in zip(AMOUNTS[1:], self.values()[1:], strict=True)
        }
        return {"calls": self.calls, "charged_s": seconds_of(self.charged_ns), **seconds}


AMOUNTS: tuple[str, ...] = tuple(field.name for field in fields(Amounts))
"""The names of all amounts, in order; they are columns of tables, too."""


class DayKey(NamedTuple):
    """What usage is kept by when its prompts are forgotten. day: of UTC, counted from 1970."""

    tenant: TenantId
    day: int
    lane: str
    function: str


class CellKey(NamedTuple):
    """What usage of a prompt is kept by. worker: the slot; a later worker in its place counts as the same."""

    tenant: TenantId
    prompt_id: PromptId
    day: int
    node: NodeId
    function: str
    model: str
    worker: str


@dataclass(slots=True)
class Cell:
    """What calls of one function, for one node of a prompt, have used. node_class: empty if unknown."""

    node_class: str
    lane: str
    amounts: Amounts


def amounts_of(queued_s: float, timing: Timing, charged_s: float) -> Amounts:
    """Return what one stay has used; its parts add up to the charge, to the nanosecond."""
    load_ns, compute_ns = nanoseconds(timing.load_s), nanoseconds(timing.compute_s)
    transfer_ns = nanoseconds(timing.transfer_s)
    untimed_ns = 0
    if charged_s != timing.total_s():
        untimed_ns = nanoseconds(charged_s) - load_ns - compute_ns - transfer_ns
    return Amounts(
        1, nanoseconds(queued_s), load_ns, compute_ns, transfer_ns, nanoseconds(timing.waited_s), untimed_ns
    )


def summed(parts: Sequence[Amounts]) -> Amounts:
    """Return the sum of some amounts."""
    total = Amounts()
    for part in parts:
        total.add(part)
    return total


def nanoseconds(seconds: float) -> int:
    """Return the nearest whole number of nanoseconds; nothing for what no call can take, or is no number."""
    return round(seconds * _NS) if -_LONGEST_S < seconds < _LONGEST_S else 0


def seconds_of(ns: int) -> float:
    """Return nanoseconds as seconds."""
    return ns / _NS


def day_of(unix_ms: int) -> int:
    """Return the UTC day of a time, counted from 1970."""
    return unix_ms // _DAY_MS


def until_next_day_s(unix_ms: int) -> int:
    """Return the whole seconds until the next UTC day begins, at least one."""
    return -(-(_DAY_MS - unix_ms % _DAY_MS) // 1000)
