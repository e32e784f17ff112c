"""Fill free lanes: while a lane has a free slot and a ready invocation, choose one, place it, charge it.

Suspects run one at a time, whatever their lane: when a worker is lost again, it is known who did it, and
nobody is blamed for having run beside a call that kills workers.
"""

from __future__ import annotations

from comfyserverless.core.modelfn import LANES, Lane
from comfyserverless.scheduling.charges import Charges
from comfyserverless.scheduling.checkpoints import Checkpoints
from comfyserverless.scheduling.config import SchedulingConfig
from comfyserverless.scheduling.estimates import Estimates
from comfyserverless.scheduling.instructions import StartInvocation
from comfyserverless.scheduling.invocations import InvocationRecord, Lease, Turn
from comfyserverless.scheduling.placement import WorkerPool
from comfyserverless.scheduling.policies.registry import policy_of
from comfyserverless.scheduling.table import InvocationTable

_REFRESH_S = 1.0
"""How soon a changed weight of a tenant that has runs open holds."""


class Dispatch:
    """Match the backlog with the pool."""

    def __init__(
        self,
        config: SchedulingConfig,
        table: InvocationTable,
        pool: WorkerPool,
        estimates: Estimates,
        checkpoints: Checkpoints,
        charges: Charges,
    ) -> None:
        self._config = config
        self._policy = policy_of(config)
        self._table = table
        self._pool = pool
        self._ledger = charges.ledger
        self._estimates = estimates
        self._checkpoints = checkpoints
        self._charges = charges
        self._refreshed_s = -_REFRESH_S

    def fill(self, turn: Turn) -> None:
        """Start what can start; afterwards no lane has both a free slot and a ready invocation.

        Of suspects, only one runs. Emits: StartInvocation for each.
        """
        backlog, free = self._table.backlog.lanes, self._pool.free
        if turn.at_s >= self._refreshed_s + _REFRESH_S:
            self._refreshed_s = turn.at_s
            self._ledger.refresh(self._table.open_runs())
        if self._table.backlog.held and not self._pool.has_suspect():
            for record in self._table.backlog.let_in():
                self._ledger.lanes[record.spec.lane].enter(record.spec.tenant)
        for lane in LANES:
            while backlog[lane] and free[lane]:
                self._start_next(lane, turn)

    def _start_next(self, lane: Lane, turn: Turn) -> None:
        choice = self._policy.choose(self._table.backlog, lane, self._ledger.lanes[lane], turn.at_s)
        self._start(choice.record, choice.least_s, turn)

    def _start(self, record: InvocationRecord, least_s: float, turn: Turn) -> None:
        """Place and charge a record. Pre: it is ready, and its lane has a free slot."""
        lane = record.spec.lane
        worker = self._pool.best_fit(record, self._estimates, self._config.transfer_penalty_s)
        missing = worker.missing(record) if record.spec.weights else ()
        estimate_s = self._estimates.run_s(record.spec) + self._estimates.load_s(missing)
        self._ledger.lanes[lane].charge(record.spec.tenant, estimate_s, least_s)
        is_saved = self._checkpoints.is_due(record)
        self._table.move(record, "running", turn)
        if record.attempts:
            self._table.backlog.hold_back()
        self._pool.occupy(worker, record)
        queued_s, by_others_s = turn.at_s - record.ready_at_s, self._charges.by_others_s(record)
        record.lease = Lease(worker.id, turn.at_s, queued_s, estimate_s, by_others_s, missing)
        record.has_lost_inputs = False
        turn.out.append(StartInvocation(record.spec.id, worker.id, lane, turn.cause, is_saved, record.is_saved))
