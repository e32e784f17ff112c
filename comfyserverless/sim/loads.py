"""Describe what simulated tenants send and when: a backlog without end, random moments, or a given trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import TenantId
from comfyserverless.sim.prompts import PromptShape


@dataclass(frozen=True, slots=True)
class TenantLoad:
    """What one tenant sends.

    outstanding: it keeps so many prompts running or waiting, as long as the simulation lasts; or rate_per_s:
    it sends at random moments, so many on average (Poisson); or sent_at_s: when it sends. Raises ConfigError
    unless it is one of these.
    """

    tenant: TenantId
    shape: PromptShape
    weight: float = 1.0
    outstanding: int = 0
    rate_per_s: float = 0.0
    sent_at_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if (self.outstanding > 0) + (self.rate_per_s > 0) + bool(self.sent_at_s) != 1:
            raise ConfigError(
                f"tenant {self.tenant}: give one of `outstanding`, `rate_per_s` (above 0) and `sent_at_s`"
            )

    def arrivals_s(self, random: Random, until_s: float) -> Iterator[float]:
        """List when prompts are sent, besides those that follow the end of another."""
        if self.outstanding:
            yield from [0.0] * self.outstanding
            return
        if self.sent_at_s:
            yield from self.sent_at_s
            return
        at_s = random.expovariate(self.rate_per_s)
        while at_s < until_s:
            yield at_s
            at_s += random.expovariate(self.rate_per_s)


def two_backlogged(outstanding: int = 3) -> tuple[TenantLoad, TenantLoad]:
    """Return the load of `bench fairness`: 8 pictures x 40 steps against 1 x 8, both without end."""
    heavy = TenantLoad(TenantId("heavy"), PromptShape(8, 40), outstanding=outstanding)
    return heavy, TenantLoad(TenantId("light"), PromptShape(1, 8), outstanding=outstanding)


def many_tenants(count: int, seed: int, rate_per_s: float = 0.0) -> tuple[TenantLoad, ...]:
    """Return tenants of random sizes and weights; with a rate they send now and then, else without end."""
    random = Random(seed)
    loads = []
    for number in range(count):
        shape = PromptShape(random.choice((1, 1, 2, 4, 8)), random.choice((4, 8, 20, 40)))
        weight = random.choice((0.5, 1.0, 1.0, 2.0))
        backlog = 0 if rate_per_s else random.randint(2, 4)
        loads.append(TenantLoad(TenantId(f"t{number}"), shape, weight, backlog, rate_per_s))
    return tuple(loads)
