"""Remember what ran in which lane over the last minute, as stretches that a person can tell apart.

Steps may take ten milliseconds; a picture of a minute shows nothing shorter than a tenth of a second. So stays
of one function for one node that follow each other closely are one stretch, also when others lie between.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from comfyserverless.control.metering.measured import Measured
from comfyserverless.core.ids import NodeId, PromptId, TenantId, WorkerId
from comfyserverless.core.modelfn import Lane
from comfyserverless.scheduling.instructions import Outcome

KEPT_S = 75.0
"""How long a stretch is kept after its end."""

STRETCHES = 4096
"""So many stretches are kept, those that ended last."""

TOLD = 2048
"""So many stretches are told to who has seen none yet, and a quarter of that to who looks again."""

GAP_S = 0.1
"""Stays with a smaller gap between them are one stretch."""


class StretchKey(NamedTuple):
    """What the stays of a stretch have in common. run: a prompt's id and a serial, `prompt#serial`."""

    worker: WorkerId
    lane: Lane
    tenant: TenantId
    run: PromptId
    node: NodeId
    function: str
    outcome: Outcome


@dataclass(slots=True)
class Stretch:
    """Stays of one kind, one after the other. Times are monotonic seconds.

    number: names it for as long as it is kept; change: counts up with every change of any stretch. held_s,
    load_s, charged_s: summed over its `calls`.
    """

    number: int
    change: int
    key: StretchKey
    began_s: float
    ended_s: float
    calls: int = 0
    held_s: float = 0.0
    load_s: float = 0.0
    charged_s: float = 0.0


class Timeline:
    """Keep the last stretches."""

    def __init__(self) -> None:
        self._changes = 0
        self._numbers = 0
        #: all and only stretches that are kept, by number, the one that changed last at the end.
        self._stretches: OrderedDict[int, Stretch] = OrderedDict()  # its first entry is found at once
        #: the last kept stretch of each kind.
        self._latest: dict[StretchKey, Stretch] = {}

    def __len__(self) -> int:
        return len(self._stretches)

    @property
    def changes(self) -> int:
        """Count the changes so far."""
        return self._changes

    def add(self, measured: Measured) -> None:
        """Add a stay that ends now."""
        spec = measured.spec
        key = StretchKey(
            measured.worker,
            spec.lane,
            spec.tenant,
            spec.run,
            spec.node,
            spec.function,
            measured.outcome,
        )
        began_s = measured.ended_s - measured.held_s
        stretch = self._latest.get(key)
        if stretch is None or began_s - stretch.ended_s > GAP_S:
            self._numbers += 1
            stretch = Stretch(self._numbers, 0, key, began_s, measured.ended_s)
            self._latest[key] = self._stretches[stretch.number] = stretch
        else:
            self._stretches.move_to_end(stretch.number)
        self._changes += 1
        stretch.change = self._changes
        stretch.began_s = min(stretch.began_s, began_s)
        stretch.ended_s = measured.ended_s
        stretch.calls += 1
        stretch.held_s += measured.held_s
        stretch.load_s += measured.timing.load_s
        stretch.charged_s += measured.charged_s
        self.forget_old(measured.ended_s)

    def forget_old(self, now_s: float) -> None:
        """Drop what ended too long ago, or is too much."""
        while self._stretches:
            oldest = next(iter(self._stretches.values()))
            if len(self._stretches) <= STRETCHES and oldest.ended_s >= now_s - KEPT_S:
                return
            del self._stretches[oldest.number]
            if self._latest.get(oldest.key) is oldest:
                del self._latest[oldest.key]

    def since(self, change: int) -> list[Stretch]:
        """List the stretches that were made or changed after a change, oldest change first.

        Of too many, those that held their lane longest: the others would hardly be seen.
        """
        newest_first = takewhile(lambda each: each.change > change, reversed(self._stretches.values()))
        found = list(newest_first)[::-1]
        limit = TOLD // 4 if change else TOLD
        if len(found) > limit:
            longest = sorted(found, key=lambda each: -each.held_s)[:limit]
            found = sorted(longest, key=lambda each: each.change)
        return found
