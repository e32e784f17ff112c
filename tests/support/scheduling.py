"""Drive a SchedulingState in tests: short words for events, validation after each, a clock that tests move."""

from __future__ import annotations

from comfyserverless.core.ids import InvocationId, NodeId, PromptId, TenantId, WorkerId
from comfyserverless.core.messages import Timing
from comfyserverless.core.modelfn import Lane
from comfyserverless.scheduling.config import SchedulingConfig
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

CAUSE = "test"


def start(invocation: str, worker: str = "w", lane: Lane = "gpu") -> StartInvocation:
    return StartInvocation(InvocationId(invocation), WorkerId(worker), lane, CAUSE)


def save(invocation: str, worker: str = "w") -> StartInvocation:
    """Start a step and have a checkpoint of it written."""
    return StartInvocation(InvocationId(invocation), WorkerId(worker), "gpu", CAUSE, is_saved=True)


def restore(invocation: str, worker: str = "w") -> StartInvocation:
    """Have the result of a step read from its checkpoint."""
    return StartInvocation(InvocationId(invocation), WorkerId(worker), "gpu", CAUSE, is_restored=True)


def drop_checkpoint(invocation: str) -> DropCheckpoint:
    return DropCheckpoint(InvocationId(invocation), CAUSE)


def cancel(invocation: str, worker: str = "w") -> CancelInvocation:
    return CancelInvocation(InvocationId(invocation), WorkerId(worker), CAUSE)


def drop(invocation: str) -> DropResult:
    return DropResult(InvocationId(invocation), CAUSE)


def forget(invocation: str) -> ForgetInvocation:
    return ForgetInvocation(InvocationId(invocation), CAUSE)


def abandon(invocation: str, attempts: int) -> AbandonInvocation:
    return AbandonInvocation(InvocationId(invocation), attempts, CAUSE)


def spec(
    invocation: str,
    *,
    run: str = "run",
    tenant: str = "A",
    lane: Lane = "gpu",
    needs: tuple[str, ...] = (),
    callbacks: tuple[str, ...] = (),
    weights: tuple[str, ...] = (),
    key: str = "step",
    node: str = "1",
    is_step: bool = False,
    priority: int = 0,
) -> InvocationSpec:
    return InvocationSpec(
        id=InvocationId(invocation),
        run=PromptId(run),
        tenant=TenantId(tenant),
        node=NodeId(node),
        function=key,
        lane=lane,
        cost_key=key,
        needs=tuple(InvocationId(need) for need in needs),
        callback_needs=tuple(InvocationId(need) for need in callbacks),
        weights=weights,
        is_step=is_step,
        priority=priority,
    )


class Story:
    """Tell events to a state; `now_s` is the time they carry."""

    def __init__(self, slack_s: float = 0.0, **config: object) -> None:
        self.state = SchedulingState(SchedulingConfig(slack_s=slack_s, **config))  # type: ignore[arg-type]
        self.now_s = 0.0
        #: where what runs was started
        self.worker_of: dict[str, str] = {}
        #: what was told of service; kept apart, so that stories are about what is done
        self.services: list[RecordService] = []

    def tell(self, event: Event) -> list[Instruction]:
        out = self.state.handle(event)
        self.state.validate()
        for instruction in out:
            if isinstance(instruction, StartInvocation):
                self.worker_of[instruction.invocation] = instruction.worker
        self.services += [each for each in out if isinstance(each, RecordService)]
        return [each for each in out if not isinstance(each, RecordService)]

    def join(self, worker: str = "w", gpu: int = 1, cpu: int = 1) -> list[Instruction]:
        return self.tell(WorkerJoined(WorkerId(worker), (("gpu", gpu), ("cpu", cpu)), self.now_s, CAUSE))

    def join_host(self, worker: str = "h") -> list[Instruction]:
        """Let a node host join."""
        return self.tell(WorkerJoined(WorkerId(worker), (("pack", 1), ("async", 16)), self.now_s, CAUSE))

    def lose(self, worker: str = "w", silent_s: float = 0.0) -> list[Instruction]:
        return self.tell(WorkerLost(WorkerId(worker), self.now_s, CAUSE, silent_s))

    def submit(self, invocation: str, **fields: object) -> list[Instruction]:
        return self.tell(InvocationSubmitted(spec(invocation, **fields), self.now_s, CAUSE))  # type: ignore[arg-type]

    def finish(
        self,
        invocation: str,
        compute_s: float = 1.0,
        holders: tuple[str, ...] | None = None,
        load_s: float = 0.0,
        waited_s: float = 0.0,
        checkpoint_s: float | None = None,
    ) -> list[Instruction]:
        """Report success from where it runs; its result is there unless holders are given."""
        worker = self.worker_of[invocation]
        held = tuple(WorkerId(holder) for holder in ((worker,) if holders is None else holders))
        timing = Timing(compute_s=compute_s, load_s=load_s, waited_s=waited_s)
        return self.tell(
            InvocationFinished(
                InvocationId(invocation), WorkerId(worker), timing, held, self.now_s, CAUSE, checkpoint_s
            )
        )

    def publish(self, invocation: str) -> list[Instruction]:
        worker = WorkerId(self.worker_of[invocation])
        return self.tell(InvocationPublished(InvocationId(invocation), worker, self.now_s, CAUSE))

    def fail(self, invocation: str, compute_s: float = 1.0, *, is_starved: bool = False) -> list[Instruction]:
        worker = WorkerId(self.worker_of[invocation])
        timing = Timing(compute_s=compute_s)
        return self.tell(
            InvocationFailed(InvocationId(invocation), worker, timing, self.now_s, CAUSE, is_starved=is_starved)
        )

    def cancelled(self, invocation: str, compute_s: float = 0.0) -> list[Instruction]:
        worker = WorkerId(self.worker_of[invocation])
        timing = Timing(compute_s=compute_s)
        return self.tell(InvocationCancelled(InvocationId(invocation), worker, timing, self.now_s, CAUSE))

    def pin(self, *invocations: str) -> list[Instruction]:
        return self.tell(ResultsPinned(tuple(InvocationId(i) for i in invocations), self.now_s, CAUSE))

    def unpin(self, *invocations: str) -> list[Instruction]:
        return self.tell(ResultsUnpinned(tuple(InvocationId(i) for i in invocations), self.now_s, CAUSE))

    def close(self, run: str = "run") -> list[Instruction]:
        return self.tell(RunClosed(PromptId(run), self.now_s, CAUSE))

    def phase(self, invocation: str) -> str:
        return self.state.table.records[InvocationId(invocation)].phase

    def v_time_s(self, tenant: str, lane: Lane = "gpu") -> float:
        return self.state.ledger.lanes[lane].v_time_s(TenantId(tenant))

    def chain(self, *names: str, pinned: bool = False, **fields: object) -> list[Instruction]:
        """Submit invocations that each need the one before; unpinned but for the last one unless told."""
        out: list[Instruction] = []
        for before, name in zip(("", *names), names, strict=False):
            needs = (before,) if before else ()
            out += self.submit(name, needs=needs, **fields)
        if not pinned:
            out += self.unpin(*names[:-1])
        return out
