"""Choose among ready invocations by score (paper, Algorithm 1, second layer).

score(n) = w(n) - r(n) - e(n), each divided by its largest value among the candidates: w how long its run has
been under way (so the prompts of one tenant finish in the order they came unless a shorter one overtakes), r
the remaining critical path of its run, e its own estimate. Equal scores go by submission order.
"""

from __future__ import annotations

from collections.abc import Sequence

from comfyserverless.core.ids import TenantId
from comfyserverless.core.modelfn import Lane
from comfyserverless.scheduling.backlog import Backlog
from comfyserverless.scheduling.invocations import InvocationRecord


def collect(backlog: Backlog, lane: Lane, tenants: Sequence[TenantId], window: int) -> list[InvocationRecord]:
    """List the first ready invocations of some tenants. Pre: each has one.

    window: how many invocations at most, shared evenly by the tenants (each has at least its first one in), so
    that a dispatch does not cost more the more there is to do.
    """
    share = max(1, window // len(tenants))
    return [record for tenant in tenants for record in backlog.first(lane, tenant, share)]


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
