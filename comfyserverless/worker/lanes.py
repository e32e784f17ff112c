"""Run invocations on the executor lanes: one queue per lane, one thread per slot, answers sent from there.

Every invocation gets exactly one answer. A queued one that is cancelled is answered at once; a running one is
finished, unless it waits for somebody and asks its ticket meanwhile, and its result dropped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from queue import SimpleQueue

from comfyserverless import log_lines
from comfyserverless.core.ids import InvocationId
from comfyserverless.core.messages import FromWorker, InvocationCancelled, RunInvocation, Timing
from comfyserverless.core.modelfn import Lane

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a running invocation may ask of its lane.

    commit: its result exists: False if it was cancelled, otherwise it is too late for that from now on.
    is_cancelled: whether it shall end, for those who wait.
    """

    commit: Callable[[], bool]
    is_cancelled: Callable[[], bool]


Step = Callable[[RunInvocation, Ticket], FromWorker]
Job = RunInvocation | Callable[[], None] | None


class _State(Enum):
    QUEUED = auto()
    RUNNING = auto()
    CANCELLED = auto()  # while it ran
    COMMITTED = auto()  # its result is being stored: too late to cancel


class Lanes:
    """Own the executor threads.

    slots: threads per lane. step: runs an invocation and returns the answer. send: delivers an answer. ended:
    told after each answer, on the lane's thread.
    """

    def __init__(
        self,
        slots: Mapping[Lane, int],
        step: Step,
        send: Callable[[FromWorker], None],
        ended: Callable[[InvocationId], None],
    ) -> None:
        self._step = step
        self._send = send
        self._ended = ended
        self._lock = threading.Lock()
        #: all and only invocations that were submitted and not answered
        self._states: dict[InvocationId, _State] = {}
        self._queues: dict[Lane, SimpleQueue[Job]] = {lane: SimpleQueue() for lane in slots}
        self._threads = [
            threading.Thread(
                target=self._work, args=(self._queues[lane],), name=f"lane-{lane}-{slot}", daemon=True
            )
            for lane, count in slots.items()
            for slot in range(count)
        ]
        self._slots = slots
        for thread in self._threads:
            thread.start()

    def submit(self, run: RunInvocation) -> None:
        """Queue an invocation in its lane."""
        with self._lock:
            self._states[run.invocation] = _State.QUEUED
        self._queues[run.lane].put(run)

    def call(self, lane: Lane, action: Callable[[], None]) -> None:
        """Queue something to be done between invocations of a lane."""
        self._queues[lane].put(action)

    def cancel(self, invocation: InvocationId) -> None:
        """Cancel an invocation; one that is unknown, answered or committed is left alone."""
        with self._lock:
            state = self._states.get(invocation)
            if state is _State.RUNNING:
                self._states[invocation] = _State.CANCELLED
            if state is not _State.QUEUED:
                return
            del self._states[invocation]
        self._answer(InvocationCancelled(invocation, Timing()), invocation)

    def open_invocations(self) -> list[InvocationId]:
        """Return a snapshot of what was submitted and not answered."""
        with self._lock:
            return list(self._states)

    def stop(self) -> None:
        """Drop what is queued, wait for what runs and its answers."""
        with self._lock:
            queued = [key for key, state in self._states.items() if state is _State.QUEUED]
            for invocation in queued:
                del self._states[invocation]
        for lane, count in self._slots.items():
            for _ in range(count):
                self._queues[lane].put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, queue: SimpleQueue[Job]) -> None:
        while (job := queue.get()) is not None:
            if not isinstance(job, RunInvocation):
                _run_action(job)
            elif self._move(job.invocation, _State.QUEUED, _State.RUNNING):
                with log_lines.about(invocation=job.invocation, prompt_id=job.invocation.partition("#")[0]):
                    answer = self._step(job, self._ticket(job.invocation))
                with self._lock:
                    del self._states[job.invocation]
                self._answer(answer, job.invocation)

    def _ticket(self, invocation: InvocationId) -> Ticket:
        return Ticket(
            lambda: self._move(invocation, _State.RUNNING, _State.COMMITTED),
            lambda: self._states.get(invocation) is _State.CANCELLED,
        )

    def _move(self, invocation: InvocationId, before: _State, after: _State) -> bool:
        with self._lock:
            is_as_expected = self._states.get(invocation) is before
            if is_as_expected:
                self._states[invocation] = after
        return is_as_expected

    def _answer(self, answer: FromWorker, invocation: InvocationId) -> None:
        self._send(answer)
        self._ended(invocation)


def _run_action(action: Callable[[], None]) -> None:
    try:
        action()
    except Exception:  # worker step: a lane must outlive what it runs
        log.exception("an action on a lane failed")
