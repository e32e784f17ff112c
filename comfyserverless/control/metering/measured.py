"""Define what is told of each stay of an invocation in a lane: the source of accounts and metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from comfyserverless.core.ids import WorkerId
from comfyserverless.core.messages import Timing
from comfyserverless.scheduling.events import InvocationSpec
from comfyserverless.scheduling.instructions import Outcome, RecordService


@dataclass(frozen=True, slots=True)
class Measured:
    """One stay of an invocation in a lane of a worker; a call that was made again has several.

    queued_s: since all its inputs were there, until it got the lane. held_s: in the lane, as the scheduler saw
    it, the way to the worker and back included. charged_s: seconds of service that its tenant was charged for,
    before weights; the timing's total and what of its waited_s others wanted the lane for, and for a lost
    worker (whose timing nobody knows) what counts of held_s. ended_s: on the dispatcher's clock (monotonic
    seconds).
    """

    spec: InvocationSpec
    worker: WorkerId
    outcome: Outcome
    queued_s: float
    held_s: float
    timing: Timing
    charged_s: float
    ended_s: float


class Meter:
    """Tell listeners of every stay of an invocation in a lane when it ends, on the event loop."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Measured], None]] = []

    def listen(self, listener: Callable[[Measured], None]) -> None:
        """Call `listener` from now on; it must be quick and must not raise."""
        self._listeners.append(listener)

    def record(self, spec: InvocationSpec, service: RecordService, now_s: float) -> None:
        """Tell of one stay, which ends now."""
        measured = Measured(
            spec,
            service.worker,
            service.outcome,
            service.queued_s,
            service.held_s,
            service.timing,
            service.charged_s,
            now_s,
        )
        for listener in self._listeners:
            listener(measured)
