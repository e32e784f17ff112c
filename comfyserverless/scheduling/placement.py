"""Know the workers: what runs in their lanes, which weights and results are there; pick the best fit."""

from __future__ import annotations

from dataclasses import dataclass, field

from comfyserverless.core.errors import InvariantError
from comfyserverless.core.ids import InvocationId, WorkerId
from comfyserverless.core.modelfn import LANES, Lane
from comfyserverless.scheduling.estimates import Estimates
from comfyserverless.scheduling.events import WorkerJoined
from comfyserverless.scheduling.invocations import InvocationRecord

WEIGHTS_LIMIT = 64
"""How many weights keys are remembered per worker; older ones are taken to be evicted there."""


@dataclass(slots=True, eq=False)
class WorkerRecord:
    """One worker. order: how many joined before it."""

    id: WorkerId
    order: int
    slots: dict[Lane, int]
    #: per lane, all and only invocations that are running or cancelling here
    running: dict[Lane, dict[InvocationId, InvocationRecord]]
    #: all and only done invocations that name this worker as a holder
    results: dict[InvocationId, InvocationRecord] = field(default_factory=dict)
    #: keys of weights that ran here, least recently used first
    weights: dict[str, None] = field(default_factory=dict)

    def missing(self, record: InvocationRecord) -> tuple[str, ...]:
        """List the weights of an invocation that have not run here."""
        return tuple(key for key in record.spec.weights if key not in self.weights)

    def load(self) -> int:
        """Count what runs here, over all lanes."""
        return sum(len(running) for running in self.running.values())


class WorkerPool:
    """Hold the workers that joined and are not lost."""

    def __init__(self) -> None:
        self.workers: dict[WorkerId, WorkerRecord] = {}
        #: per lane, all and only workers with a free slot
        self.free: dict[Lane, dict[WorkerId, WorkerRecord]] = {lane: {} for lane in LANES}
        self._joined = 0

    def join(self, event: WorkerJoined) -> None:
        """Add a worker. Raises InvariantError if its id is in use."""
        if event.worker in self.workers:
            raise InvariantError(f"worker {event.worker} joined twice (cause {event.cause})")
        slots = dict(event.lanes)
        running: dict[Lane, dict[InvocationId, InvocationRecord]] = {lane: {} for lane in slots}
        worker = WorkerRecord(event.worker, self._joined, slots, running)
        self._joined += 1
        self.workers[event.worker] = worker
        for lane, count in slots.items():
            if count > 0:
                self.free[lane][event.worker] = worker

    def remove(self, worker_id: WorkerId) -> WorkerRecord | None:
        """Take a worker out; None if it is not there."""
        worker = self.workers.pop(worker_id, None)
        for free in self.free.values():
            free.pop(worker_id, None)
        return worker

    def occupy(self, worker: WorkerRecord, record: InvocationRecord) -> None:
        """Give an invocation a slot of its lane. Pre: one is free."""
        lane = record.spec.lane
        worker.running[lane][record.spec.id] = record
        if len(worker.running[lane]) >= worker.slots[lane]:
            del self.free[lane][worker.id]
        for key in () if record.is_saved else record.spec.weights:
            worker.weights.pop(key, None)
            worker.weights[key] = None
        while len(worker.weights) > WEIGHTS_LIMIT:
            del worker.weights[next(iter(worker.weights))]

    def has_suspect(self) -> bool:
        """Tell whether a suspect is in some lane."""
        return any(
            record.attempts
            for worker in self.workers.values()
            for running in worker.running.values()
            for record in running.values()
        )

    def vacate(self, worker: WorkerRecord, record: InvocationRecord) -> None:
        """Take an invocation out of its slot. Pre: it is there."""
        lane = record.spec.lane
        del worker.running[lane][record.spec.id]
        self.free[lane].setdefault(worker.id, worker)

    def hold(self, record: InvocationRecord) -> bool:
        """Note who holds a result; False if one of the holders is not here, so that the result is lost."""
        for holder in record.holders:
            worker = self.workers.get(holder)
            if worker is None:
                return False
            worker.results[record.spec.id] = record
        return True

    def let_go(self, record: InvocationRecord) -> None:
        """Note that nobody holds a result any more."""
        for holder in record.holders:
            worker = self.workers.get(holder)
            if worker is not None:
                worker.results.pop(record.spec.id, None)
        record.holders = ()

    def best_fit(
        self, record: InvocationRecord, estimates: Estimates, transfer_penalty_s: float
    ) -> WorkerRecord:
        """Return the free worker where an invocation is done soonest: weights and inputs there, little else.

        Pre: its lane has a free slot. Ties go to fewer missing weights, less load, the earlier to join.
        """
        free = self.free[record.spec.lane]
        if len(free) == 1:
            return next(iter(free.values()))

        def rank(worker: WorkerRecord) -> tuple[float, int, int, int]:
            missing = worker.missing(record)
            away = sum(1 for need in record.inputs if need.holders and worker.id not in need.holders)
            delay_s = estimates.load_s(missing) + away * transfer_penalty_s
            return delay_s, len(missing), worker.load(), worker.order

        return min(free.values(), key=rank)
