"""Remember who held the GPU lanes over the last minutes, in samples at even distances.

Held is measured, not charged: every stay in a lane either has ended or still goes on, so at the time of a
sample the part of each since the sample before is known exactly, also for calls that take much longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile

from comfyserverless.core.ids import TenantId

SAMPLES = 300
"""So many samples are kept: ten minutes of one every two seconds."""

TENANTS_PER_SAMPLE = 64
"""So many tenants are in a sample by name, those that held most; the others are added up."""


@dataclass(frozen=True, slots=True)
class TenantShare:
    """One tenant in one sample.

    held_ratio: part of all GPU lanes that its calls held since the sample before. ahead_s: its vTime less the
    lane's virtual time (seconds of service over weight).
    """

    tenant: TenantId
    held_ratio: float
    ahead_s: float


@dataclass(frozen=True, slots=True)
class Sample:
    """The GPU lanes since the sample before. number: counts from 1; lanes: how many there are now.

    others_ratio: what the tenants held that are not in `shares`.
    """

    number: int
    at_s: float
    lanes: int
    shares: tuple[TenantShare, ...]
    others_ratio: float


class ShareHistory:
    """Keep the last samples. All times are monotonic seconds."""

    def __init__(self, now_s: float) -> None:
        #: seconds that tenants held since the last sample, of stays that have ended.
        self._held_s: dict[TenantId, float] = {}
        self._last_at_s = now_s
        self._count = 0
        #: the last SAMPLES samples, oldest first, numbers without a gap.
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)

    @property
    def count(self) -> int:
        """Return the number of the last sample, 0 before the first."""
        return self._count

    def end_stay(self, tenant: TenantId, began_s: float, ended_s: float) -> None:
        """Add a stay in a GPU lane that has ended."""
        self._add(tenant, began_s, ended_s)

    def take(
        self, now_s: float, staying: list[tuple[TenantId, float]], lanes: int, ahead_s: Mapping[TenantId, float]
    ) -> None:
        """Take a sample. staying: (tenant, since when) of what is in GPU lanes now; ahead_s: of the busy."""
        for tenant, began_s in staying:
            self._add(tenant, began_s, now_s)
        capacity_s = max(lanes * (now_s - self._last_at_s), 1e-9) if lanes else None
        held = {
            tenant: 0.0 if capacity_s is None else min(1.0, self._held_s.get(tenant, 0.0) / capacity_s)
            for tenant in {**ahead_s, **self._held_s}
        }
        ranked = sorted(held, key=lambda tenant: -held[tenant])
        named, others = ranked[:TENANTS_PER_SAMPLE], ranked[TENANTS_PER_SAMPLE:]
        shares = tuple(TenantShare(tenant, held[tenant], ahead_s.get(tenant, 0.0)) for tenant in named)
        self._count += 1
        self._samples.append(Sample(self._count, now_s, lanes, shares, sum(held[each] for each in others)))
        self._held_s.clear()
        self._last_at_s = now_s

    def since(self, number: int) -> list[Sample]:
        """List the samples that are kept after one, oldest first."""
        newest_first: Iterator[Sample] = takewhile(
            lambda sample: sample.number > number, reversed(self._samples)
        )
        return list(newest_first)[::-1]

    def _add(self, tenant: TenantId, began_s: float, ended_s: float) -> None:
        held_s = ended_s - max(began_s, self._last_at_s)
        if held_s > 0:
            self._held_s[tenant] = self._held_s.get(tenant, 0.0) + held_s
