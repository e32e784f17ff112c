"""Carry out scheduling: turn submissions and worker answers into events, and instructions into messages.

The dispatcher owns the scheduling state, the results, and the calls (function and inputs) of every
invocation that may still run. It is synchronous and runs on the event loop; only waiting is async.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from comfyserverless.control.metering.measured import Meter
from comfyserverless.control.publications import PublicationTable
from comfyserverless.control.results import Freed, ResultTable, ResultWaiters, unused
from comfyserverless.control.views import RecoveryView
from comfyserverless.control.workers.checkpoints import Recovery
from comfyserverless.control.workers.pictures import Observer, PictureDesk
from comfyserverless.control.workers.room import RoomQueue
from comfyserverless.core import messages as wire
from comfyserverless.core import values
from comfyserverless.core.errors import NoRoomError, WorkerError
from comfyserverless.core.ids import InvocationId, PromptId, TenantId, WorkerId
from comfyserverless.core.modelfn import HOST_LANES, Lane
from comfyserverless.core.values import Output, Value
from comfyserverless.scheduling import events, instructions
from comfyserverless.scheduling.events import InvocationSpec
from comfyserverless.scheduling.state import SchedulingConfig, SchedulingState

log = logging.getLogger(__name__)

LOST_TENSOR = "LostTensor"
"""The exception type a worker reports when an input's arena is gone."""

PUBLICATION_FAILED = "PublicationFailed"
"""The exception type a worker reports when a callback input ended before it was complete."""

NO_ROOM = f"{NoRoomError.__module__}.{NoRoomError.__qualname__}"
"""The exception type a worker reports when its arena is full."""

_LOSS_GRACE_S = 0.5


@dataclass(slots=True)
class Call:
    """What must be known to run an invocation, again if need be.

    forgotten: called once, when it has left its lane for good and nobody can want its result any more. about:
    is kept for whoever looks for it weakly.
    """

    spec: InvocationSpec
    inputs: dict[str, Value]
    observer: Observer | None
    forgotten: Callable[[], None] | None = None
    about: object = None


class Dispatcher:
    """Drive the scheduling state.

    send: deliver a message to a worker's link; clock: monotonic seconds; make_room: let go of results in a
    worker's full arena that only wait to be used again, False if there are none; recovery: what is kept for the
    loss of a worker. Others may look at `state`, and change nothing there.
    """

    def __init__(
        self,
        config: SchedulingConfig,
        send: Callable[[WorkerId, wire.ToWorker], None],
        clock: Callable[[], float],
        make_room: Callable[[WorkerId], bool],
        recovery: Recovery,
    ) -> None:
        self.meter = Meter()
        self.pictures = PictureDesk()
        self.state = SchedulingState(config)
        self._send = send
        self._clock = clock
        self._make_room = make_room
        self._recovery = recovery
        self._overlaps = config.overlap_callbacks
        self._results = ResultTable()
        self._room = RoomQueue(self._results, self._let_in)
        self._publications = PublicationTable()
        #: all and only invocations that the scheduling state has not told us to forget.
        self._calls: dict[InvocationId, Call] = {}
        #: why an invocation failed; only keys of _calls.
        self._failures: dict[InvocationId, WorkerError] = {}
        self._waiters = ResultWaiters()
        #: what each joined worker runs now.
        self._running: dict[WorkerId, dict[InvocationId, None]] = {}
        #: all and only invocations that were cancelled and are still in a lane: where, and since when.
        self._cancelled: dict[InvocationId, tuple[WorkerId, float]] = {}
        #: failures for want of a lost input that are held back for the loss to be noticed.
        self._deferred: set[InvocationId] = set()
        self._pending_events: deque[events.Event] = deque()
        self._is_handling = False

    # -- what runs ask for ------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        """Submit an invocation with one pin on its result."""
        self._calls[call.spec.id] = call
        self._handle(events.InvocationSubmitted(call.spec, self._clock(), call.spec.id))

    async def value(self, output: Output) -> Value:
        """Wait for what an output stands for. Raises WorkerError if its invocation failed."""
        while output.invocation not in self._results:
            failure = self._failures.get(output.invocation)
            if failure is not None:
                raise failure
            await self._waiters.outcome(output.invocation)
        return self._results.value(output)

    def peek(self, output: Output) -> Value | None:
        """Return what an output stands for if it is there now, else None."""
        return self._results.value(output) if output.invocation in self._results else None

    def pin(self, invocations: Collection[InvocationId], cause: str) -> None:
        """Hold results for somebody outside, until unpinned as often."""
        if invocations:
            self._handle(events.ResultsPinned(tuple(invocations), self._clock(), cause))

    def unpin(self, invocations: Collection[InvocationId], cause: str) -> None:
        """Give pins back."""
        if invocations:
            self._handle(events.ResultsUnpinned(tuple(invocations), self._clock(), cause))

    def close_run(self, run: PromptId) -> None:
        """Drop what a run has waiting and cancel what it has running."""
        self._handle(events.RunClosed(run, self._clock(), run))

    # -- what workers say -------------------------------------------------------------------------

    def worker_joined(self, worker: WorkerId, lanes: Mapping[Lane, int]) -> None:
        """Give a worker work from now on."""
        self._running[worker] = {}
        self._handle(events.WorkerJoined(worker, tuple(lanes.items()), self._clock(), worker))

    def worker_lost(self, worker: WorkerId, silent_s: float = 0.0) -> None:
        """Take back what a worker ran and what its arena held. silent_s: since it was last heard."""
        running = self._running.pop(worker, None)
        if running is not None:
            self._recovery.workers_lost += 1
            for invocation in running:
                self._cancelled.pop(invocation, None)
                self._recovery.left(invocation)
                self._free(self._publications.leave(invocation))
            self._handle(events.WorkerLost(worker, self._clock(), worker, silent_s))
            self._room.lost(worker)
            self.pictures.worker_lost(worker)

    def published(self, worker: WorkerId, message: wire.InvocationPublished) -> None:
        """Let consumers of a callback input start beside their producer, which has begun."""
        self._publications.open(worker, message)
        self._handle(events.InvocationPublished(message.invocation, worker, self._clock(), message.invocation))

    def done(self, worker: WorkerId, message: wire.InvocationDone) -> None:
        """Store a result; one that nobody wants any more is freed at once."""
        outputs = values.decode(message.outputs)
        checkpoint_s = self._recovery.saved_s(message)
        self._settle(worker, message.invocation)
        call = self._calls.get(message.invocation)
        if call is None or message.invocation in self._results:
            if checkpoint_s is not None:
                self._recovery.drop(message.invocation)
            self._free(unused([ref for ref in values.held_refs(outputs) if ref.worker == worker]))
            return
        holders = self._results.put(message.invocation, outputs)
        name, now_s = message.invocation, self._clock()
        finished = events.InvocationFinished(name, worker, message.timing, holders, now_s, name, checkpoint_s)
        self._handle(finished)
        call.observer = self.pictures.hold(worker, message, call.observer)
        self._report(message.invocation, call, outputs, None)

    def failed(self, worker: WorkerId, message: wire.InvocationFailed) -> None:
        """Take note that a function raised; the scheduling state decides whether that is final."""
        if message.invocation not in self._running.get(worker, {}):
            self._deferred.discard(message.invocation)  # held back, and its own worker was lost meanwhile
            return
        if message.exception_type == LOST_TENSOR and message.invocation not in self._deferred:
            # the owner of an input died; its loss is an event of its own that must come first
            self._deferred.add(message.invocation)
            asyncio.get_running_loop().call_later(_LOSS_GRACE_S, self.failed, worker, message)
            return
        self._deferred.discard(message.invocation)
        is_starved = message.exception_type == PUBLICATION_FAILED or (
            message.exception_type == LOST_TENSOR and self._publications.is_reading(message.invocation)
        )
        self._settle(worker, message.invocation)
        call = self._calls.get(message.invocation)
        if call is None:
            return
        name, now_s = message.invocation, self._clock()
        has_room_now = awaits_room = False
        if message.exception_type == NO_ROOM and not (has_room_now := self._make_room(worker)):
            awaits_room = self._room.admit(call.spec, worker)
        causes = has_room_now, is_starved, awaits_room
        self._handle(events.InvocationFailed(name, worker, message.timing, now_s, name, *causes))
        if self.state.has_failed(name):
            self._fail(call, WorkerError(message.message, message.exception_type, message.traceback))

    def cancelled(self, worker: WorkerId, message: wire.InvocationCancelled) -> None:
        """Take note that a cancelled invocation left its lane."""
        self._settle(worker, message.invocation)
        self._handle(
            events.InvocationCancelled(
                message.invocation, worker, message.timing, self._clock(), message.invocation
            )
        )

    # -- what others look at ----------------------------------------------------------------------

    def running_on(self, worker: WorkerId) -> tuple[InvocationId, ...]:
        """List what a worker runs now."""
        return tuple(self._running.get(worker, ()))

    def on_worker(self, invocations: Iterable[InvocationId], worker: WorkerId) -> set[InvocationId]:
        """Return those whose results mention tensors in a worker's arena."""
        return {i for i in invocations if self._results.mentions_worker(i, worker)}

    def held_up(self, limit_s: float) -> dict[WorkerId, InvocationId]:
        """Return the workers that go on with a cancelled invocation for longer than a limit, and with which."""
        since_s = self._clock() - limit_s
        return {worker: each for each, (worker, at_s) in self._cancelled.items() if at_s < since_s}

    def service_s(self, tenant: TenantId) -> dict[str, float]:
        """Return the seconds of service that a tenant was given so far, by lane."""
        return self.state.ledger.service_s(tenant)

    def waited_s(self, tenant: TenantId) -> dict[str, float]:
        """Return the seconds that a tenant's calls waited in a lane and were not charged for, by lane."""
        return self.state.ledger.waited_s(tenant)

    def recovery(self) -> RecoveryView:
        """Tell what losses of workers have cost."""
        return self._recovery.view(self.state.checkpoints.largest_steps)

    def counts(self) -> dict[str, int]:
        """Count what is held, to see leaks: calls, results, tensors, publications."""
        return {
            "calls": len(self._calls),
            "results": len(self._results),
            "tensors": self._results.tensor_count(),
            "publications": len(self._publications),
        }

    # -- instructions -----------------------------------------------------------------------------

    def _handle(self, event: events.Event) -> None:
        """Feed one event; instructions that raise further events are queued behind it."""
        self._pending_events.append(event)
        self._room.moved()
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._pending_events:
                for instruction in self.state.handle(self._pending_events.popleft()):
                    self._carry_out(instruction)
        finally:
            self._is_handling = False

    def _carry_out(self, instruction: instructions.Instruction) -> None:
        match instruction:
            case instructions.StartInvocation():
                self._start(instruction)
            case instructions.CancelInvocation():
                self._cancelled[instruction.invocation] = (instruction.worker, self._clock())
                self._send(instruction.worker, wire.CancelInvocation(instruction.invocation))
            case instructions.DropResult():
                self._free(self._results.drop(instruction.invocation))
            case instructions.DropCheckpoint():
                self._recovery.drop(instruction.invocation)
            case instructions.ForgetInvocation():
                self._forget(instruction.invocation)
            case instructions.AbandonInvocation():
                self._abandon(instruction)
            case instructions.RecordService():
                self.meter.record(self._calls[instruction.invocation].spec, instruction, self._clock())
            case _:
                assert_never(instruction)

    def _start(self, start: instructions.StartInvocation) -> None:
        call = self._calls[start.invocation]
        self._running[start.worker][start.invocation] = None
        given = {} if start.is_restored else call.inputs
        try:
            inputs = values.encode(values.replace_outputs(given, self._resolve))
        except (TypeError, ValueError, OverflowError) as exc:
            asyncio.get_running_loop().call_soon(self.failed, start.worker, _refusal(start.invocation, exc))
            return
        if not start.is_restored:
            self._publications.read(start.invocation, call.spec.callback_needs)
        publishes = self._overlaps and start.lane not in HOST_LANES and _computing(self.state) > 1
        orders = self._recovery.prepare(start, call.spec.is_step)
        function = call.spec.function
        self._send(
            start.worker,
            wire.RunInvocation(start.invocation, function, start.lane, inputs, publishes, *orders),
        )

    def _resolve(self, output: Output) -> Value:
        """Return a result, or what its producer publishes of it by now."""
        if output.invocation in self._results:
            return self._results.value(output)
        return self._publications.find(output)

    def _abandon(self, abandon: instructions.AbandonInvocation) -> None:
        call = self._calls[abandon.invocation]
        self._fail(call, _given_up(call.spec, abandon.attempts))

    def _fail(self, failed: Call, error: WorkerError) -> None:
        """Report a final failure to whoever waits for the call or for what depends on it in its run.

        A call that is made again after a loss has been reported as done before; then only its dependents tell.
        """
        run = failed.spec.run
        calls = [each for each in self._calls.values() if each.spec.run == run]
        for call in (failed, *calls):
            if call is failed or self.state.has_failed(call.spec.id):
                if call.spec.id in self._calls:
                    self._failures[call.spec.id] = error
                self._report(call.spec.id, call, {}, error)

    def _forget(self, invocation: InvocationId) -> None:
        call = self._calls.pop(invocation, None)
        self._failures.pop(invocation, None)
        self._recovery.forget(invocation)
        self._room.forget(invocation)
        self._waiters.give_up(invocation)
        if call is not None and call.forgotten is not None:
            call.forgotten()

    def _settle(self, worker: WorkerId, invocation: InvocationId) -> None:
        self._cancelled.pop(invocation, None)
        self._running.get(worker, {}).pop(invocation, None)
        self._recovery.left(invocation)
        self._free(self._publications.leave(invocation))

    def _report(
        self, invocation: InvocationId, call: Call, outputs: Mapping[str, Value], error: WorkerError | None
    ) -> None:
        """Wake who waits and tell the observer, after the messages that are queued for workers went out."""
        self._waiters.wake(invocation)
        if call.observer is not None:
            observer, call.observer = call.observer, None
            asyncio.get_running_loop().call_soon(observer, outputs, error)

    def _free(self, freed: Freed) -> None:
        for worker, tensors in freed.items():
            if worker in self._running:
                self._send(worker, wire.FreeTensors(tuple(tensors)))
                self._room.freed(worker)

    def _let_in(self, invocations: Sequence[InvocationId]) -> None:
        self._handle(events.RoomAwaited(tuple(invocations), self._clock(), "room"))


async def room_for(invocation: InvocationId, own: Dispatcher) -> bool:
    """Make room for what a call that runs has made, or wait for it; False if there will be none."""
    at = next((worker for worker, running in own._running.items() if invocation in running), None)
    return at is not None and (own._make_room(at) or await own._room.wait(own._calls[invocation].spec, at))


def _refusal(invocation: InvocationId, error: Exception) -> wire.InvocationFailed:
    """Answer as a worker would for an invocation whose inputs have no wire form."""
    message = f"an input cannot be sent to a worker: {error}"
    return wire.InvocationFailed(invocation, type(error).__name__, message, (), wire.Timing())


def _computing(state: SchedulingState) -> int:
    """Count the workers that run model functions."""
    return sum(1 for worker in state.pool.workers.values() if not worker.slots.keys() <= HOST_LANES)


def _given_up(spec: InvocationSpec, attempts: int) -> WorkerError:
    if attempts and spec.lane in HOST_LANES:
        what = f"{spec.node_class} (node {spec.node})"
        text = f"The process of the node packs ended while it ran {what}; see the log"
        error = WorkerError(text, "NodeHostLostError")
    else:
        error = WorkerError(_why_given_up(spec.function, attempts), "WorkerLostError")
    about = {"invocation": spec.id, "prompt_id": spec.run.partition("#")[0], "tenant": spec.tenant}
    log.error("invocation %s of prompt %s: %s", spec.id, spec.run, error, extra=about)
    return error


def _why_given_up(function: str, attempts: int) -> str:
    if not attempts:
        return f"{function} was given up: a result it needs was lost and could not be made again"
    return (
        f"{function} was given up: its worker was lost {attempts} times while it ran;"
        " running out of memory is the usual reason"
    )
