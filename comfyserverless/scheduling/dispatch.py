"""Fill free lanes: while a lane has a free slot and a ready invocation, choose one, place it, charge it."""

from __future__ import annotations

from comfyserverless.core.modelfn import LANES, Lane
from comfyserverless.scheduling.config import SchedulingConfig
from comfyserverless.scheduling.estimates import Estimates
from comfyserverless.scheduling.instructions import StartInvocation
from comfyserverless.scheduling.invocations import Lease, Turn
from comfyserverless.scheduling.ledger import Ledger
from comfyserverless.scheduling.placement import WorkerPool
from comfyserverless.scheduling.scoring import choose
from comfyserverless.scheduling.table import InvocationTable


class Dispatch:
    """Match the backlog with the pool."""

    def __init__(
        self,
        config: SchedulingConfig,
        table: InvocationTable,
        pool: WorkerPool,
        ledger: Ledger,
        estimates: Estimates,
    ) -> None:
        self._config = config
        self._table = table
        self._pool = pool
        self._ledger = ledger
        self._estimates = estimates

    def fill(self, turn: Turn) -> None:
        """Start what can start; afterwards no lane has both a free slot and a ready invocation.

        Emits: StartInvocation for each.
        """
        backlog, free = self._table.backlog.lanes, self._pool.free
        for lane in LANES:
            while backlog[lane] and free[lane]:
                self._start_next(lane, turn)

    def _start_next(self, lane: Lane, turn: Turn) -> None:
        config, ledger = self._config, self._ledger.lanes[lane]
        choice = choose(
            self._table.backlog,
            lane,
            ledger,
            window=config.score_window,
            slack_s=config.slack_s,
            at_s=turn.at_s,
        )
        record = choice.record
        worker = self._pool.best_fit(record, self._estimates, config.transfer_penalty_s)
        missing = worker.missing(record) if record.spec.weights else ()
        estimate_s = self._estimates.run_s(record.spec) + self._estimates.load_s(missing)
        charge_s = ledger.charge(record.spec.tenant, estimate_s, choice.least_s)
        self._table.move(record, "running", turn)
        self._pool.occupy(worker, record)
        record.lease = Lease(worker.id, turn.at_s, charge_s, missing)
        record.has_lost_inputs = False
        turn.out.append(StartInvocation(record.spec.id, worker.id, lane, turn.cause))
