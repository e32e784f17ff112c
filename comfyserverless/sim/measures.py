"""Measure how service was shared: who was ahead of whom by how much, shares, and waits.

Seconds of service are divided by the tenant's weight, as the bound asks for: two tenants that both have work
throughout an interval get service in it that differs by no more than 2 (slack + L), with L the largest single
charge (paper, section 6).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Service:
    """One stay in a lane that was charged: to whom, when it ended (seconds on any clock), how many seconds."""

    tenant: str
    ended_s: float
    charged_s: float


@dataclass(frozen=True, slots=True)
class Lead:
    """Service of one tenant less that of another since the beginning, after something was charged."""

    at_s: float
    ahead_s: float


def leads(
    services: Sequence[Service], one: str, other: str, weights: Mapping[str, float] | None = None
) -> list[Lead]:
    """Follow how far one tenant is ahead of another. services: in the order in which they ended."""
    signs = {one: 1.0, other: -1.0}
    shares = weights or {}
    ahead_s = 0.0
    found: list[Lead] = []
    for service in services:
        if service.tenant in signs:
            ahead_s += signs[service.tenant] * service.charged_s / shares.get(service.tenant, 1.0)
            found.append(Lead(service.ended_s, ahead_s))
    return found


def widest_s(course: Sequence[Lead]) -> float:
    """Return the largest difference of service over any interval: the spread of the lead, which begins at 0."""
    values = [0.0, *(lead.ahead_s for lead in course)]
    return max(values) - min(values)


def largest_charge_s(services: Sequence[Service], weights: Mapping[str, float] | None = None) -> float:
    """Return L: the largest single charge, divided by weight."""
    shares = weights or {}
    return max((each.charged_s / shares.get(each.tenant, 1.0) for each in services), default=0.0)


def bound_s(services: Sequence[Service], slack_s: float, weights: Mapping[str, float] | None = None) -> float:
    """Return 2 (slack + L)."""
    return 2 * (slack_s + largest_charge_s(services, weights))


def shares(services: Sequence[Service]) -> dict[str, float]:
    """Return each tenant's part of all service, whatever the weights; the parts add up to 1."""
    seconds: dict[str, float] = {}
    for service in services:
        seconds[service.tenant] = seconds.get(service.tenant, 0.0) + service.charged_s
    total_s = sum(seconds.values())
    return {tenant: each / total_s if total_s else 0.0 for tenant, each in seconds.items()}


def percentile(values: Sequence[float], ratio: float) -> float:
    """Return the smallest value that so large a part of all is not above (nearest rank); nan for nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(ratio * len(ordered)) - 1)]


def mean(values: Sequence[float]) -> float:
    """Return the mean; nan if there is none."""
    return statistics.fmean(values) if values else math.nan


def thinned(course: Sequence[Lead], count: int) -> list[Lead]:
    """Return at most so many moments of a course, its last and those that stand out among them.

    Of every piece of it the lead that is farthest from 0 is kept, so that no peak is lost.
    """
    if len(course) <= count:
        return list(course)
    size = math.ceil(len(course) / count)
    pieces = [course[at : at + size] for at in range(0, len(course), size)]
    return [max(piece, key=lambda lead: abs(lead.ahead_s)) for piece in pieces]
