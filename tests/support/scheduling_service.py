"""Measure service: random tenants keep the GPU lanes of a few workers busy; every second is written down."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import combinations
from random import Random

from comfyserverless.core.ids import TenantId, WorkerId
from comfyserverless.core.messages import Timing
from comfyserverless.scheduling.config import SchedulingConfig
from comfyserverless.scheduling.events import (
    Event,
    InvocationFinished,
    InvocationSubmitted,
    RunClosed,
    WorkerJoined,
    WorkerLost,
)
from comfyserverless.scheduling.instructions import StartInvocation
from comfyserverless.scheduling.state import SchedulingState
from tests.support.scheduling import spec

COSTS_S = {"tiny": 0.05, "short": 0.3, "long": 2.0}


@dataclass(frozen=True)
class ServicePlan:
    """What the tenants ask for. error_ratio: how far a measured cost may be from its usual one, either way.

    weights: of the first tenants; reweighs: how often one of them gets another of `other_weights`.
    """

    seed: int
    tenants: int = 3
    slots: int = 1
    slack_s: float = 0.5
    grace_s: float = 0.0
    error_ratio: float = 0.0
    loss_ratio: float = 0.0
    duration_s: float = 40.0
    weights: tuple[float, ...] = ()
    reweighs: int = 0
    other_weights: tuple[float, ...] = (0.05, 0.5, 1.0, 4.0)


@dataclass
class Moment:
    """After one event: service per tenant so far, and who has ready work that waits for a slot.

    weights: those that hold.
    """

    dispatched_s: dict[str, float]
    measured_s: dict[str, float]
    backlogged: frozenset[str]
    weights: tuple[float, ...]


@dataclass
class ServiceMeter:
    """Play a plan. All seconds are divided by the tenant's weight at the time."""

    plan: ServicePlan
    moments: list[Moment] = field(default_factory=list)
    largest_s: float = 0.0

    def __post_init__(self) -> None:
        self.random = Random(self.plan.seed)
        names = [f"t{index}" for index in range(self.plan.tenants)]
        self.weights = dict(zip(names, (*self.plan.weights, *[1.0] * len(names)), strict=False))
        #: as somebody sets them; `weights` are those that hold
        self.set_weights = {TenantId(name): weight for name, weight in self.weights.items()}
        config = SchedulingConfig(
            slack_s=self.plan.slack_s, grace_s=self.plan.grace_s, tenant_weights=self.set_weights
        )
        self.state = SchedulingState(config)
        for key, cost_s in COSTS_S.items():
            self.state.estimates.observe(spec("warm", key=key), Timing(compute_s=cost_s), ())
        self.now_s = 0.0
        self.dispatched_s = dict.fromkeys(names, 0.0)
        self.measured_s = dict.fromkeys(names, 0.0)
        self._agenda: list[tuple[float, int, Event]] = []
        self._count = 0
        self._open: dict[str, int] = {}

    def play(self) -> None:
        """Submit bursts and chains of every tenant with pauses between, until the time is over."""
        for slot in range(self.plan.slots):
            self._plan_event(WorkerJoined(WorkerId(f"w{slot}"), (("gpu", 1),), 0.0, "join"))
        for tenant in self.weights:
            self._plan_tenant(tenant)
        self._reweigh_s = sorted(
            self.random.uniform(0.0, self.plan.duration_s) for _ in range(self.plan.reweighs)
        )
        while self._agenda and self.now_s < self.plan.duration_s:
            self.now_s, _, event = heapq.heappop(self._agenda)
            self._tell(event)

    def widest_gap_s(self, service: str) -> float:
        """Return the largest |W_f - W_g| over all pairs and all intervals in which both stay backlogged.

        service: `dispatched_s` or `measured_s`. Over one unbroken interval of a pair, the largest difference of
        any part of it is the spread of the running difference.
        """
        widest_s = 0.0
        for one, other in combinations(self.weights, 2):
            low = high = None
            for moment in self.moments:
                if not {one, other} <= moment.backlogged:
                    low = high = None
                    continue
                served: dict[str, float] = getattr(moment, service)
                lead_s = served[one] - served[other]
                low = lead_s if low is None else min(low, lead_s)
                high = lead_s if high is None else max(high, lead_s)
                widest_s = max(widest_s, high - low)
        return widest_s

    def widest_excess_s(self, service: str, largest_cost_s: float) -> float:
        """Return by how much a pair was ever beyond its bound, over intervals in which no weight changed.

        The largest charge is that of the pair: what others' weights make of it does not count. At a change what
        a tenant is ahead is the same seconds of service, so it is as much larger as the weight is smaller.
        """
        excess_s = float("-inf")
        names = list(self.weights)
        for (f, one), (g, other) in combinations(enumerate(names), 2):
            low = high = held = before = None
            for moment in self.moments:
                weights = moment.weights[f], moment.weights[g]
                if not {one, other} <= moment.backlogged or weights != held:
                    before, held = (held or weights), weights
                    low = high = None
                    if not {one, other} <= moment.backlogged:
                        before = weights
                        continue
                assert before is not None
                served: dict[str, float] = getattr(moment, service)
                lead_s = served[one] - served[other]
                low = lead_s if low is None else min(low, lead_s)
                high = lead_s if high is None else max(high, lead_s)
                grown = max(1.0, *(old / new for old, new in zip(before, weights, strict=True)))
                bound_s = 2 * (self.plan.slack_s * grown + largest_cost_s / min(weights))
                excess_s = max(excess_s, high - low - bound_s)
        return excess_s

    def _plan_tenant(self, tenant: str) -> None:
        at_s = self.random.choice((0.0, self.random.uniform(0.0, 20.0)))
        is_chain = self.random.random() < 0.3
        for burst in range(self.random.randint(1, 6)):
            run, before = f"{tenant}.{burst}", ""
            for index in range(self.random.randint(1, 60)):
                name = f"{run}.{index}"
                key = self.random.choice(tuple(COSTS_S))
                needs = (before,) if is_chain and before else ()
                event = InvocationSubmitted(spec(name, run=run, tenant=tenant, needs=needs, key=key), at_s, "s")
                self._plan_event(event)
                self._open[run] = self._open.get(run, 0) + 1
                before = name
                at_s += self.random.choice((0.0, 0.0, 0.0, self.random.uniform(0.0, 0.5)))
            at_s += self.random.choice((0.0, self.random.uniform(0.0, 15.0)))

    def _plan_event(self, event: Event) -> None:
        self._count += 1
        heapq.heappush(self._agenda, (event.at_s, self._count, event))

    def _tell(self, event: Event) -> None:
        while self._reweigh_s and self._reweigh_s[0] <= event.at_s:
            self._reweigh_s.pop(0)
            tenant = self.random.choice(list(self.set_weights))
            self.set_weights[tenant] = self.random.choice(self.plan.other_weights)
        if isinstance(event, WorkerLost):
            self._account_lost(event)
        elif isinstance(event, InvocationFinished):
            if event.worker not in self.state.pool.workers:
                return
            self._account_finished(event)
        answer = self.state.handle(event)
        self.weights = {name: self.state.ledger.weight(TenantId(name)) for name in self.weights}
        for instruction in answer:
            if isinstance(instruction, StartInvocation):
                self._start(instruction)
        backlogged = frozenset(str(tenant) for tenant in self.state.table.backlog.lanes["gpu"])
        weights = tuple(self.weights.values())
        self.moments.append(Moment(dict(self.dispatched_s), dict(self.measured_s), backlogged, weights))

    def _start(self, instruction: StartInvocation) -> None:
        record = self.state.table.records[instruction.invocation]
        assert record.lease is not None
        tenant, error = record.spec.tenant, self.plan.error_ratio
        charge_s = record.lease.estimate_s / self.weights[tenant]
        self.dispatched_s[tenant] += charge_s
        self.largest_s = max(self.largest_s, charge_s)
        cost_s = COSTS_S[record.spec.function] * self.random.uniform(1 - error, 1 + error)
        timing = Timing(compute_s=cost_s)
        end_s = self.now_s + cost_s
        if self.random.random() < self.plan.loss_ratio:
            lost_s = self.now_s + self.random.uniform(0.0, cost_s)
            silent_s = self.random.uniform(0.0, 2 * cost_s)
            self._plan_event(WorkerLost(instruction.worker, lost_s, "lost", silent_s))
            self._plan_event(WorkerJoined(WorkerId(f"w{self._count}x"), (("gpu", 1),), lost_s, "join"))
            return
        done = InvocationFinished(record.spec.id, instruction.worker, timing, (), end_s, "done")
        self._plan_event(done)

    def _account_finished(self, event: InvocationFinished) -> None:
        record = self.state.table.records[event.invocation]
        served_s = event.timing.total_s() / self.weights[record.spec.tenant]
        self.measured_s[record.spec.tenant] += served_s
        self.largest_s = max(self.largest_s, served_s)
        run = record.spec.run
        self._open[run] -= 1
        if not self._open[run]:
            self._plan_event(RunClosed(run, event.at_s, "close"))

    def _account_lost(self, event: WorkerLost) -> None:
        worker = self.state.pool.workers.get(event.worker)
        for record in worker.running["gpu"].values() if worker else ():
            assert record.lease is not None
            held_s = event.at_s - record.lease.started_at_s
            charged_s = max(held_s - event.silent_s, min(record.lease.estimate_s, held_s))
            self.measured_s[record.spec.tenant] += charged_s / self.weights[record.spec.tenant]
