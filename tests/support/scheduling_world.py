"""Play the world around a SchedulingState: control room, workers that run, fail and die, and a clock.

The world keeps its own account of what is true (which results exist where, what runs, what was asked to go
away) and raises AssertionError as soon as an instruction contradicts it. It stops when nothing can happen any
more; a deadlock shows as runs that are not over.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from comfyserverless.core.ids import InvocationId, NodeId, PromptId, TenantId, WorkerId
from comfyserverless.core.messages import Timing
from comfyserverless.core.modelfn import Lane
from comfyserverless.scheduling.config import PolicyName, SchedulingConfig
from comfyserverless.scheduling.events import (
    Event,
    InvocationCancelled,
    InvocationFailed,
    InvocationFinished,
    InvocationPublished,
    InvocationSpec,
    InvocationSubmitted,
    ResultsPinned,
    ResultsUnpinned,
    RoomAwaited,
    RunClosed,
    WorkerJoined,
    WorkerLost,
)
from comfyserverless.scheduling.instructions import (
    AbandonInvocation,
    CancelInvocation,
    DropCheckpoint,
    DropResult,
    ForgetInvocation,
    Instruction,
    RecordService,
    StartInvocation,
)
from comfyserverless.scheduling.state import SchedulingState


@dataclass(frozen=True)
class WorldPlan:
    """What may happen, as numbers; ratios are probabilities."""

    seed: int
    tenants: int = 3
    runs: int = 8
    run_size: int = 8
    workers: int = 2
    gpu_slots: int = 1
    slack_s: float = 1.0
    cpu_ratio: float = 0.2
    callback_ratio: float = 0.0
    loss_ratio: float = 0.0
    fail_ratio: float = 0.0
    interrupt_ratio: float = 0.0
    foreign_need_ratio: float = 0.0
    starve_ratio: float = 0.0
    room_ratio: float = 0.0
    step_ratio: float = 0.0
    checkpoint_steps: int | None = 0
    bad_checkpoint_ratio: float = 0.0
    max_attempts: int = 100
    policy: PolicyName = "vtime"
    priority_ratio: float = 0.0
    reweigh_ratio: float = 0.0
    grace_s: float = 0.0


@dataclass
class RunPlay:
    """One run as the control room sees it: what it has still to submit, and what it waits for."""

    id: PromptId
    tenant: TenantId
    todo: list[InvocationSpec]
    submitted: list[InvocationId] = field(default_factory=list)
    done: set[InvocationId] = field(default_factory=set)
    outcome: str = "open"


@dataclass
class Execution:
    """One invocation on a worker; number tells apart two executions of one invocation."""

    spec: InvocationSpec
    worker: WorkerId
    number: int
    started_at_s: float
    cost_s: float
    has_lost_input: bool = False
    is_cancelled: bool = False
    is_publishing: bool = False
    is_saved: bool = False
    is_restored: bool = False
    #: for how long others than its tenant have wanted its lane
    wanted_s: float = 0.0
    #: what it waits for, by the execution that makes it
    sources: tuple[Execution, ...] = ()


class World:
    """Run a plan to its end; afterwards look at `events`, `answers` and `runs`."""

    def __init__(self, plan: WorldPlan) -> None:
        self.plan = plan
        self.random = Random(plan.seed)
        #: they may change at any time, as those of accounts do
        self.weights: dict[TenantId, float] = {}
        self.config = SchedulingConfig(
            slack_s=plan.slack_s,
            grace_s=plan.grace_s,
            max_attempts=plan.max_attempts,
            checkpoint_steps=plan.checkpoint_steps,
            overlap_callbacks=plan.callback_ratio > 0,
            score_window=5,
            policy=plan.policy,
            tenant_weights=self.weights,
        )
        self.state = SchedulingState(self.config)
        self.now_s = 0.0
        self.events: list[Event] = []
        self.answers: list[list[Instruction]] = []
        self.runs: dict[PromptId, RunPlay] = {}
        self.specs: dict[InvocationId, InvocationSpec] = {}
        self.pins: dict[InvocationId, int] = {}
        self.results: dict[InvocationId, tuple[WorkerId, ...]] = {}
        self.workers: dict[WorkerId, dict[Lane, int]] = {}
        self.executions: dict[InvocationId, Execution] = {}
        self.failed: set[InvocationId] = set()
        #: results that can be read from a checkpoint
        self.saved: set[InvocationId] = set()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._joined = 0
        self._told_at_s = 0.0
        #: of what has just left its lane: for how long others wanted it meanwhile
        self.wanted_s: dict[InvocationId, float] = {}

    def play(self) -> None:
        """Join, submit, run until nothing is left on the agenda."""
        for index in range(self.plan.workers):
            self._at(self.random.uniform(0.0, 2.0) * index, self._join)
        for index in range(self.plan.runs):
            self._at(self.random.uniform(0.0, 10.0), lambda index=index: self._open(index))  # type: ignore[misc]
        while self._agenda:
            self.now_s, _, act = heapq.heappop(self._agenda)
            act()

    def unpin_everything(self) -> None:
        """Close what is open and end every pin."""
        for run in self.runs.values():
            if run.outcome == "open":
                self._close(run, "interrupted")
        while self._agenda:
            self.now_s, _, act = heapq.heappop(self._agenda)
            act()
        for invocation in list(self.pins):
            while self.pins.get(invocation):
                self._unpin(invocation)

    # The control room

    def _open(self, index: int) -> None:
        run_id = PromptId(f"r{index}")
        tenant = TenantId(f"t{self.random.randrange(self.plan.tenants)}")
        self.runs[run_id] = run = RunPlay(run_id, tenant, self._graph(run_id, tenant))
        if self.random.random() < self.plan.reweigh_ratio:
            self.weights[tenant] = self.random.choice((0.1, 1.0, 5.0))
        self._submit_some(run)
        if self.random.random() < self.plan.interrupt_ratio:
            self._at(self.random.uniform(0.1, 10.0), lambda: self._close(run, "interrupted"))

    def _graph(self, run_id: PromptId, tenant: TenantId) -> list[InvocationSpec]:
        specs: list[InvocationSpec] = []
        priority = self.random.randint(-2, 2) if self.random.random() < self.plan.priority_ratio else 0
        for index in range(self.random.randint(1, self.plan.run_size)):
            earlier = [spec.id for spec in specs]
            needs = self.random.sample(earlier, min(len(earlier), self.random.randrange(3)))
            pinned = [each for each in self.pins if self.pins[each] and each in self.results]
            if pinned and self.random.random() < self.plan.foreign_need_ratio:
                needs.append(self.random.choice(pinned))
            callbacks = [need for need in needs if self.random.random() < self.plan.callback_ratio]
            kind = self.random.choice(("short", "long", "odd"))
            specs.append(
                InvocationSpec(
                    id=InvocationId(f"{run_id}.{index}"),
                    run=run_id,
                    tenant=tenant,
                    node=NodeId(str(index // 4)),
                    is_step=self.random.random() < self.plan.step_ratio,
                    function=kind,
                    lane="cpu" if self.random.random() < self.plan.cpu_ratio else "gpu",
                    cost_key=kind,
                    needs=tuple(need for need in needs if need not in callbacks),
                    callback_needs=tuple(callbacks),
                    weights=(kind,) if self.random.random() < 0.3 else (),
                    priority=priority,
                )
            )
        return specs

    def _submit_some(self, run: RunPlay) -> None:
        """Submit a part of what is left; the rest follows later, as lowerings do."""
        if run.outcome != "open":
            return
        for _ in range(self.random.randint(1, max(1, len(run.todo)))):
            spec = run.todo.pop(0)
            if any(self.pins.get(need, 0) == 0 and self.specs[need].run != run.id for need in _inputs(spec)):
                # Its foreign input was let go meanwhile: a real control room would have pinned it.
                spec = _without_foreign(spec, run.id)
            self.specs[spec.id] = spec
            self.pins[spec.id] = 1
            run.submitted.append(spec.id)
            self._tell(InvocationSubmitted(spec, self.now_s, "submit"))
            if self._is_over(run):
                return
        if run.todo:
            self._at(self.random.uniform(0.0, 1.0), lambda: self._submit_some(run))

    def _is_over(self, run: RunPlay) -> bool:
        return run.outcome != "open"

    def _on_done(self, spec: InvocationSpec) -> None:
        run = self.runs[spec.run]
        run.done.add(spec.id)
        if self.random.random() < 0.2 and self.pins.get(spec.id):
            self.pins[spec.id] += 1
            self._tell(ResultsPinned((spec.id,), self.now_s, "pin"))
        if run.outcome == "open" and not run.todo and run.done.issuperset(run.submitted):
            self._close(run, "success")

    def _close(self, run: RunPlay, outcome: str) -> None:
        if run.outcome != "open":
            return
        run.outcome = outcome
        self._tell(RunClosed(run.id, self.now_s, outcome))
        for invocation in run.submitted:
            if self.pins[invocation] and self.random.random() < 0.7:
                self._at(self.random.uniform(0.0, 5.0), lambda i=invocation: self._unpin(i))  # type: ignore[misc]

    def _unpin(self, invocation: InvocationId) -> None:
        if self.pins.get(invocation):
            self.pins[invocation] -= 1
            self._tell(ResultsUnpinned((invocation,), self.now_s, "unpin"))

    # The workers

    def _join(self) -> None:
        worker = WorkerId(f"w{self._joined}")
        self._joined += 1
        lanes: dict[Lane, int] = {"gpu": self.plan.gpu_slots, "cpu": 1}
        self.workers[worker] = lanes
        self._tell(WorkerJoined(worker, tuple(lanes.items()), self.now_s, "join"))
        if self.random.random() < self.plan.loss_ratio:
            self._at(self.random.uniform(0.1, 8.0), lambda: self._lose(worker))

    def _lose(self, worker: WorkerId) -> None:
        del self.workers[worker]
        for invocation, execution in list(self.executions.items()):
            if execution.worker == worker:
                del self.executions[invocation]
        gone = {invocation for invocation, holders in self.results.items() if worker in holders}
        for execution in self.executions.values():
            if gone.intersection(_inputs(execution.spec)) and not execution.is_restored:
                execution.has_lost_input = True
        self._at(self.random.uniform(0.0, 1.0), self._join)
        self._tell(WorkerLost(worker, self.now_s, "lost"))
        assert not gone.intersection(self.results), "a lost result was not dropped"

    def _start(self, instruction: StartInvocation) -> None:
        spec = self.specs[instruction.invocation]
        assert spec.id not in self.executions, "started twice"
        assert instruction.is_restored == (spec.id in self.saved), "restored if and only if it is saved"
        if not instruction.is_restored:
            self._check_inputs(spec)
        lanes = self.workers[instruction.worker]
        lanes[spec.lane] -= 1
        assert lanes[spec.lane] >= 0, "more than its slots run on a worker"
        self._count += 1
        cost_s = {"short": 0.05, "long": 1.5, "odd": self.random.uniform(0.01, 2.0)}[spec.function]
        execution = Execution(spec, instruction.worker, self._count, self.now_s, cost_s)
        execution.is_saved, execution.is_restored = instruction.is_saved, instruction.is_restored
        execution.sources = tuple(
            self.executions[need]
            for need in spec.callback_needs
            if need not in self.results and not instruction.is_restored
        )
        self.executions[spec.id] = execution
        if self.config.overlap_callbacks and self.random.random() < 0.8:
            self._at(self.random.uniform(0.0, 1.2) * cost_s, lambda: self._publish(execution))
        self._at(cost_s, lambda: self._end(execution))

    def _check_inputs(self, spec: InvocationSpec) -> None:
        assert all(need in self.results for need in spec.needs), "started before an input exists"
        for need in spec.callback_needs:
            source = self.executions.get(need)
            is_live = source is not None and source.is_publishing and not source.is_cancelled
            assert need in self.results or (is_live and self.config.overlap_callbacks), "producer has no lane"

    def _end(self, execution: Execution) -> None:
        spec = execution.spec
        if self.executions.get(spec.id) is not execution:
            return
        pending = [each for each in execution.sources if self.executions.get(each.spec.id) is each]
        if pending and not execution.is_cancelled and not execution.has_lost_input:
            # It waits for elements of a producer that runs: it ends after that one.
            last = pending[-1]
            rest_s = max(0.0, last.started_at_s + last.cost_s - self.now_s)
            self._at(rest_s + 0.001, lambda: self._end(execution))
            return
        self._pass_time()
        self.wanted_s[spec.id] = execution.wanted_s
        del self.executions[spec.id]
        self.workers[execution.worker][spec.lane] += 1
        self._report(execution)

    def _publish(self, execution: Execution) -> None:
        """Tell that it has begun; the word may come late, and twice."""
        if self.executions.get(execution.spec.id) is execution:
            execution.is_publishing = True
            self._tell(InvocationPublished(execution.spec.id, execution.worker, self.now_s, "publish"))

    def _report(self, execution: Execution) -> None:
        spec, worker = execution.spec, execution.worker
        held_s = self.now_s - execution.started_at_s
        compute_s = min(held_s, execution.cost_s)
        timing = Timing(compute_s=compute_s, waited_s=held_s - compute_s)
        lacks_callback = any(need not in self.results for need in spec.callback_needs)
        lacks_callback = lacks_callback and not execution.is_restored
        draw = self.random.random()
        if execution.is_cancelled and (draw < 0.6 or lacks_callback):
            self._tell(InvocationCancelled(spec.id, worker, timing, self.now_s, "cancelled"))
        elif execution.has_lost_input and (draw < 0.5 or lacks_callback):
            self._tell(InvocationFailed(spec.id, worker, timing, self.now_s, "input lost"))
        elif execution.sources and draw < self.plan.starve_ratio:
            # It saw an end of its input before the control room was told of it.
            self._tell(InvocationFailed(spec.id, worker, timing, self.now_s, "starved", is_starved=True))
        elif self.plan.room_ratio and self.random.random() < self.plan.room_ratio:
            self._tell(InvocationFailed(spec.id, worker, timing, self.now_s, "no room", awaits_room=True))
            self._at(
                self.random.uniform(0.0, 2.0), lambda: self._tell(RoomAwaited((spec.id,), self.now_s, "room"))
            )
        elif execution.is_restored and draw < self.plan.bad_checkpoint_ratio:
            self._tell(InvocationFailed(spec.id, worker, timing, self.now_s, "cannot be read"))
        elif draw < self.plan.fail_ratio and not execution.has_lost_input and not execution.is_restored:
            self.failed.add(spec.id)
            self._tell(InvocationFailed(spec.id, worker, timing, self.now_s, "raised"))
            if not execution.is_cancelled:
                self._close(self.runs[spec.run], "error")
        else:
            self.results[spec.id] = holders = (worker,) if draw < 0.95 else ()
            checkpoint_s = 0.01 if execution.is_saved and self.random.random() < 0.8 else None
            if checkpoint_s is not None:
                self.saved.add(spec.id)
            self._tell(InvocationFinished(spec.id, worker, timing, holders, self.now_s, "done", checkpoint_s))
            self._on_done(spec)

    # The link between them

    def _tell(self, event: Event) -> None:
        self._pass_time()
        answer = self.state.handle(event)
        self.events.append(event)
        self.answers.append(answer)
        self.state.validate()
        abandoned: list[InvocationId] = []
        for instruction in answer:
            if isinstance(instruction, StartInvocation):
                self._check_priority(instruction)
                self._start(instruction)
            elif isinstance(instruction, RecordService):
                self._account(instruction)
            elif isinstance(instruction, CancelInvocation):
                self._cancel(instruction)
            elif isinstance(instruction, DropResult):
                assert instruction.invocation in self.results, "dropped a result that does not exist"
                del self.results[instruction.invocation]
            elif isinstance(instruction, DropCheckpoint):
                assert not self._is_read(instruction.invocation), "dropped a checkpoint that is being read"
                self.saved.discard(instruction.invocation)
            elif isinstance(instruction, ForgetInvocation):
                assert instruction.invocation not in self.results, "forgot a result without dropping it"
                assert instruction.invocation not in self.executions, "forgot what runs"
                self.pins[instruction.invocation] = 0
                self.saved.discard(instruction.invocation)
            elif isinstance(instruction, AbandonInvocation):
                abandoned.append(instruction.invocation)
        for invocation in abandoned:
            self._close(self.runs[self.specs[invocation].run], "error")

    def _pass_time(self) -> None:
        """Note for what runs whether others wanted its lane until now."""
        for execution in self.executions.values():
            wanting = self.state.table.backlog.lanes[execution.spec.lane].keys() - {execution.spec.tenant}
            if wanting:
                execution.wanted_s += self.now_s - max(self._told_at_s, execution.started_at_s)
        self._told_at_s = self.now_s

    def _account(self, service: RecordService) -> None:
        """Check what is told of a stay: nobody holds a lane that others want and is not charged for it."""
        wanted_s = self.wanted_s.pop(service.invocation, 0.0)
        if service.outcome != "lost":
            assert service.charged_s >= service.timing.total_s()
            assert service.charged_s >= wanted_s - 1e-9, "held a wanted lane for longer than it is charged for"
        assert service.charged_s <= service.held_s + 1e-9, "charged for more than it held"

    def _check_priority(self, instruction: StartInvocation) -> None:
        spec = self.specs[instruction.invocation]
        if self.plan.policy == "fifo":
            return  # runs go one after another, whatever their priority
        left = self.state.table.backlog.lanes[spec.lane].get(spec.tenant)
        if left:
            (first,) = self.state.table.backlog.first(spec.lane, spec.tenant, 1)
            assert first.spec.priority <= spec.priority, "something more urgent of the tenant is ready"

    def _is_read(self, invocation: InvocationId) -> bool:
        execution = self.executions.get(invocation)
        return execution is not None and execution.is_restored

    def _cancel(self, instruction: CancelInvocation) -> None:
        execution = self.executions[instruction.invocation]
        assert execution.worker == instruction.worker, "cancelled where it does not run"
        assert not execution.is_cancelled, "cancelled twice"
        execution.is_cancelled = True
        self._at(self.random.uniform(0.0, 0.2), lambda: self._end(execution))

    def _at(self, delay_s: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._agenda, (self.now_s + delay_s, self._count, act))


def _inputs(spec: InvocationSpec) -> tuple[InvocationId, ...]:
    return spec.needs + spec.callback_needs


def _without_foreign(spec: InvocationSpec, run: PromptId) -> InvocationSpec:
    def is_own(need: InvocationId) -> bool:
        return need.startswith(f"{run}.")

    return InvocationSpec(
        id=spec.id,
        run=spec.run,
        tenant=spec.tenant,
        node=spec.node,
        function=spec.function,
        lane=spec.lane,
        cost_key=spec.cost_key,
        needs=tuple(filter(is_own, spec.needs)),
        callback_needs=tuple(filter(is_own, spec.callback_needs)),
        weights=spec.weights,
        is_step=spec.is_step,
        priority=spec.priority,
    )
