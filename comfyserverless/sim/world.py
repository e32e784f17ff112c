"""Play tenants and workers on a virtual clock around the scheduling state that the product runs.

Everything that decides is the product's: `SchedulingState`, and how many runs a tenant has open. What is
simulated is what takes time: a call holds its lane for as long as its cost says (times a seeded error, plus the
load of weights that are not there), and nothing else takes any. The same seed gives the same trace.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from comfyserverless.core.ids import InvocationId, NodeId, PromptId, TenantId, WorkerId
from comfyserverless.core.messages import Timing
from comfyserverless.core.modelfn import Lane
from comfyserverless.scheduling.config import SchedulingConfig
from comfyserverless.scheduling.events import (
    Event,
    InvocationFinished,
    InvocationSpec,
    InvocationSubmitted,
    ResultsUnpinned,
    RunClosed,
    WorkerJoined,
)
from comfyserverless.scheduling.instructions import RecordService, StartInvocation
from comfyserverless.scheduling.policies.open_runs import Line, is_one_queue, most_running
from comfyserverless.scheduling.state import SchedulingState
from comfyserverless.sim.loads import TenantLoad
from comfyserverless.sim.measures import Service

_LANES: tuple[tuple[Lane, int], ...] = (("gpu", 1), ("cpu", 2))


@dataclass(frozen=True, slots=True)
class SimulationPlan:
    """What to play.

    error_ratio: how far a cost may be from its usual one, either way; load_s: of one model; between_s: from the
    end of a prompt until its tenant's next one begins.
    """

    loads: tuple[TenantLoad, ...]
    scheduling: SchedulingConfig
    workers: int = 1
    duration_s: float = 60.0
    error_ratio: float = 0.05
    load_s: float = 0.3
    between_s: float = 0.005
    seed: int = 0


@dataclass(slots=True)
class SimulatedPrompt:
    """One prompt, from its sending to its end. service_s: of GPU lanes, as it was charged."""

    id: PromptId
    load: TenantLoad
    sent_s: float
    number: int
    began_s: float | None = None
    ended_s: float | None = None
    service_s: float = 0.0
    #: how many of its invocations are not done
    left: int = 0

    def wait_s(self) -> float:
        """Return the seconds from sending to end that were not its own service. Pre: it has ended."""
        assert self.ended_s is not None
        return self.ended_s - self.sent_s - self.service_s


@dataclass(slots=True)
class Trace:
    """What happened: all charges of GPU lanes in order, and all prompts in the order of their end."""

    services: list[Service] = field(default_factory=list)
    ended: list[SimulatedPrompt] = field(default_factory=list)


class Simulation:
    """Play a plan. watch: looks at it after each event."""

    def __init__(self, plan: SimulationPlan, watch: Callable[[Simulation], None] | None = None) -> None:
        self.plan = plan
        self.state = SchedulingState(plan.scheduling)
        self.now_s = 0.0
        self.trace = Trace()
        self._watch = watch
        self._random = Random(plan.seed)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._sent = 0
        self._waiting: dict[TenantId, deque[SimulatedPrompt]] = {load.tenant: deque() for load in plan.loads}
        self._running: dict[TenantId, int] = dict.fromkeys(self._waiting, 0)
        #: of every invocation that was submitted and is not done
        self._prompt_of: dict[InvocationId, SimulatedPrompt] = {}
        self._cost_s: dict[InvocationId, float] = {}
        #: worker -> the weights that are there; there is room for all
        self._weights: dict[WorkerId, set[str]] = {}

    def play(self) -> Trace:
        """Play to the end of the time; what runs then is cut off."""
        for number in range(self.plan.workers):
            worker = WorkerId(f"w{number}")
            self._weights[worker] = set()
            self._tell(WorkerJoined(worker, _LANES, 0.0, worker))
        for load in self.plan.loads:
            for at_s in load.arrivals_s(self._random, self.plan.duration_s):
                self._at(at_s, lambda load=load: self._send(load))  # type: ignore[misc]
        while self._agenda and self._agenda[0][0] <= self.plan.duration_s:
            self.now_s, _, act = heapq.heappop(self._agenda)
            act()
        return self.trace

    # -- tenants and control ----------------------------------------------------------------------

    def _send(self, load: TenantLoad) -> None:
        self._sent += 1
        prompt = SimulatedPrompt(PromptId(f"{load.tenant}.{self._sent}"), load, self.now_s, self._sent)
        self._waiting[load.tenant].append(prompt)
        self._pump()

    def _pump(self) -> None:
        while (tenant := next(filter(self._has_room, self._tenants_in_turn()), None)) is not None:
            self._begin(self._waiting[tenant].popleft())

    def _tenants_in_turn(self) -> Sequence[TenantId]:
        waiting = [tenant for tenant, prompts in self._waiting.items() if prompts]
        if is_one_queue(self.plan.scheduling.policy):
            waiting.sort(key=lambda tenant: self._waiting[tenant][0].number)
        return waiting

    def _has_room(self, tenant: TenantId) -> bool:
        line = Line(self._running[tenant], 0, 0)
        most = most_running(line, self.plan.scheduling.policy, self.plan.workers, sum(self._running.values()))
        return line.running < most

    def _begin(self, prompt: SimulatedPrompt) -> None:
        prompt.began_s = self.now_s
        self._running[prompt.load.tenant] += 1
        shape, tenant = prompt.load.shape, prompt.load.tenant
        calls = list(shape.calls())
        prompt.left = len(calls)
        for call in calls:
            weights = (f"{shape.model}.{call.part}",) if call.part else ()
            spec = InvocationSpec(
                id=InvocationId(f"{prompt.id}/{call.name}"),
                run=prompt.id,
                tenant=tenant,
                node=NodeId(call.function),
                function=call.function,
                lane=call.lane,
                cost_key="|".join((call.function, *weights)),
                needs=tuple(InvocationId(f"{prompt.id}/{need}") for need in call.needs),
                weights=weights,
                is_step=call.function == "denoise.step",
            )
            self._prompt_of[spec.id] = prompt
            self._cost_s[spec.id] = call.cost_s
            self._tell(InvocationSubmitted(spec, self.now_s, spec.id))

    def _end(self, prompt: SimulatedPrompt) -> None:
        prompt.ended_s = self.now_s
        self.trace.ended.append(prompt)
        names = tuple(InvocationId(f"{prompt.id}/{call.name}") for call in prompt.load.shape.calls())
        self._tell(ResultsUnpinned(names, self.now_s, prompt.id))
        self._tell(RunClosed(prompt.id, self.now_s, prompt.id))
        self._at(self.now_s + self.plan.between_s, lambda: self._follow(prompt.load))

    def _follow(self, load: TenantLoad) -> None:
        self._running[load.tenant] -= 1
        if load.outstanding:
            self._send(load)
        self._pump()

    # -- workers ----------------------------------------------------------------------------------

    def _start(self, start: StartInvocation) -> None:
        spec = self.state.table.records[start.invocation].spec
        here = self._weights[start.worker]
        missing = [key for key in spec.weights if key not in here]
        here.update(missing)
        error = self.plan.error_ratio
        cost_s = self._cost_s[spec.id] * self._random.uniform(1 - error, 1 + error)
        timing = Timing(load_s=self.plan.load_s * len(missing), compute_s=cost_s)
        self._at(self.now_s + timing.total_s(), lambda: self._finish(start, timing))

    def _finish(self, start: StartInvocation, timing: Timing) -> None:
        name, worker = start.invocation, start.worker
        prompt = self._prompt_of.pop(name)
        del self._cost_s[name]
        self._tell(InvocationFinished(name, worker, timing, (worker,), self.now_s, name))
        prompt.left -= 1
        if not prompt.left:
            self._end(prompt)

    def _account(self, service: RecordService) -> None:
        record = self.state.table.records[service.invocation]
        if record.spec.lane == "gpu":
            tenant = record.spec.tenant
            self.trace.services.append(Service(tenant, self.now_s, service.charged_s))
            if prompt := self._prompt_of.get(service.invocation):
                prompt.service_s += service.charged_s

    # ---------------------------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        for instruction in self.state.handle(event):
            if isinstance(instruction, StartInvocation):
                self._start(instruction)
            elif isinstance(instruction, RecordService):
                self._account(instruction)
        if self._watch is not None:
            self._watch(self)

    def _at(self, at_s: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._agenda, (at_s, self._count, act))


def simulate(plan: SimulationPlan) -> Trace:
    """Play a plan."""
    return Simulation(plan).play()
