"""Choose the next invocation of a lane: fairness filter, then score (paper, Algorithm 1).

score(n) = w(n) - r(n) - e(n), each divided by its largest value among the candidates: w how long its run has
been under way (so the prompts of one tenant finish in the order they came unless a shorter one overtakes), r
the remaining critical path of its run, e its own estimate. Equal scores go by submission order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from comfyserverless.core.ids import TenantId
from comfyserverless.core.modelfn import Lane
from comfyserverless.scheduling.backlog import Backlog
from comfyserverless.scheduling.invocations import InvocationRecord
from comfyserverless.scheduling.ledger import LaneLedger

TIE_S = 1e-9
"""vTimes closer than this are equal: sums of the same charges in another order differ in the last bits."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The invocation to dispatch, and the least vTime among those who competed."""

    record: InvocationRecord
    least_s: float


def choose(
    backlog: Backlog, lane: Lane, ledger: LaneLedger, *, window: int, slack_s: float, at_s: float
) -> Choice:
    """Pick from a lane's backlog. Pre: the lane has ready invocations.

    window: how many invocations are scored, shared evenly by the candidate tenants (each has its oldest ones
    in), so that a dispatch does not cost more the more there is to do.
    """
    tenants = backlog.lanes[lane]
    v_times = [(tenant, ledger.v_time_s(tenant)) for tenant in tenants]
    least_s = min(v_time_s for _, v_time_s in v_times)
    candidates = [tenant for tenant, v_time_s in v_times if v_time_s - least_s <= slack_s + TIE_S]
    return Choice(best(_collect(backlog, lane, candidates, window), at_s), least_s)


def _collect(backlog: Backlog, lane: Lane, tenants: Sequence[TenantId], window: int) -> list[InvocationRecord]:
    share = max(1, window // len(tenants))
    return [record for tenant in tenants for record in backlog.oldest(lane, tenant, share)]


def best(records: Sequence[InvocationRecord], at_s: float) -> InvocationRecord:
    """Return the record with the highest score. Pre: records is not empty."""
    if len(records) == 1:
        return records[0]
    waited_s = [at_s - record.run.opened_at_s for record in records]
    remaining_s = [record.remaining_s() for record in records]
    estimate_s = [record.estimate_s for record in records]
    # A largest value of zero means all are zero: dividing by one keeps them so.
    most_waited_s, most_remaining_s, most_estimate_s = (
        max(column) or 1.0 for column in (waited_s, remaining_s, estimate_s)
    )
    chosen, highest = records[0], float("-inf")
    for record, w_s, r_s, e_s in zip(records, waited_s, remaining_s, estimate_s, strict=True):
        score = w_s / most_waited_s - r_s / most_remaining_s - e_s / most_estimate_s
        if score > highest or (score == highest and record.order < chosen.order):
            chosen, highest = record, score
    return chosen
