"""State the membership laws of the scheduling state as checks."""

from __future__ import annotations

from comfyserverless.core.errors import InvariantError
from comfyserverless.scheduling.invocations import BROKEN_PHASES, OPEN_PHASES, InvocationRecord
from comfyserverless.scheduling.lineage import is_needed, is_wanted
from comfyserverless.scheduling.placement import WorkerPool
from comfyserverless.scheduling.table import InvocationTable, count_missing


def check_laws(table: InvocationTable, pool: WorkerPool) -> None:
    """Check all laws. Raises InvariantError naming the first that does not hold."""
    for record in table.records.values():
        _check_links(record, table)
        _check_counts(record)
        _check_phase(record, pool)
    _check_backlog(table, pool)
    _check_workers(table, pool)
    _check_runs(table)


def _require(record: InvocationRecord, is_held: bool, law: str) -> None:
    if not is_held:
        raise record.error(f"{record.spec.id} ({record.phase}) breaks the law: {law}")


def _check_links(record: InvocationRecord, table: InvocationTable) -> None:
    key = record.spec.id
    _require(record, table.records.get(key) is record, "a record is listed under its id")
    _require(record, record.run.members.get(key) is record, "a record is a member of its run")
    for need in record.inputs:
        _require(record, table.records.get(need.spec.id) is need, "a producer outlives its consumers")
    _require(
        record, all(need.consumers.get(key) is record for need in record.needs), "producers know consumers"
    )
    _require(
        record, all(need.followers.get(key) is record for need in record.overlaps), "producers know followers"
    )
    dependents = (*record.consumers.values(), *record.followers.values())
    _require(record, all(record in each.inputs for each in dependents), "dependents know their producer")


def _check_counts(record: InvocationRecord) -> None:
    dependents = (*record.consumers.values(), *record.followers.values())
    open_count = sum(1 for each in dependents if each.phase in OPEN_PHASES)
    _require(
        record, record.open_consumers == open_count, f"open_consumers {record.open_consumers} is {open_count}"
    )
    _require(record, record.pins >= 0, "pins are not negative")
    if record.phase in ("waiting", "ready"):
        blocked = count_missing(record)
        _require(record, record.blocked == blocked, f"blocked {record.blocked} is {blocked}")
        _require(record, (blocked > 0) == (record.phase == "waiting"), "waiting means blocked")


def _check_phase(record: InvocationRecord, pool: WorkerPool) -> None:
    phase = record.phase
    _require(record, phase not in ("submitted", "forgotten"), "a listed record is neither new nor forgotten")
    _require(
        record, (record.lease is not None) == (phase in ("running", "cancelling")), "what runs has a lease"
    )
    if record.is_saved:
        is_used = not record.run.is_closed or phase in OPEN_PHASES
        _require(record, is_used, "a checkpoint goes with its run, or as soon as it was read")
    elif phase in ("waiting", "ready"):
        hopeless = (*BROKEN_PHASES, "released")
        _require(
            record, all(need.phase not in hopeless for need in record.inputs), "what waits can get its inputs"
        )
    if phase in ("waiting", "ready", "running"):
        _require(record, is_wanted(record), "what waits or runs is wanted")
    if phase == "running" and not record.has_lost_inputs and not record.is_saved:
        is_fed = all(need.feeds_followers() for need in record.overlaps)
        _require(record, is_fed, "a running follower's producers publish or are done")
    _require(record, phase == "running" or not record.is_publishing, "what publishes runs")
    if phase == "done":
        _require(record, is_needed(record), "a kept result is needed")
        _require(
            record, all(holder in pool.workers for holder in record.holders), "holders of a result are here"
        )
    if phase == "released":
        _require(
            record, bool(record.consumers or record.followers), "a spec without result is kept for consumers"
        )
        _require(record, not is_wanted(record) or not record.is_materialised, "what is wanted again is waiting")


def _check_backlog(table: InvocationTable, pool: WorkerPool) -> None:
    ready = [record for record in table.records.values() if record.phase == "ready"]
    if table.backlog.records() != sorted(ready, key=lambda record: record.order):
        raise InvariantError("the backlog holds all and only ready invocations")
    _check_suspects(table, pool)
    for lane, tenants in table.backlog.lanes.items():
        if tenants and pool.free[lane]:
            raise InvariantError(f"lane {lane} has a free slot and a ready invocation")
        if any(not ranks or ranks != sorted(ranks) for ranks in tenants.values()):
            raise InvariantError("a backlogged tenant has ready invocations, by rank")


def _check_suspects(table: InvocationTable, pool: WorkerPool) -> None:
    ready = {record.order for record in table.records.values() if record.phase == "ready" and record.attempts}
    running = [record for record in table.records.values() if record.lease is not None and record.attempts]
    if len(running) > 1:
        raise InvariantError("at most one suspect is in a lane")
    if table.backlog.held.keys() != (ready if running else set()):
        raise InvariantError("suspects are held back if and only if one is in a lane")


def _check_workers(table: InvocationTable, pool: WorkerPool) -> None:
    for worker in pool.workers.values():
        for lane, here in worker.running.items():
            is_full = len(here) >= worker.slots[lane]
            if len(here) > worker.slots[lane] or is_full == (worker.id in pool.free[lane]):
                raise InvariantError(f"{worker.id} is free in {lane} if and only if a slot is")
    running = {
        (worker.id, key) for worker in pool.workers.values() for lane in worker.running.values() for key in lane
    }
    leased = {(record.lease.worker, key) for key, record in table.records.items() if record.lease is not None}
    if running != leased:
        raise InvariantError("workers run all and only what has a lease there")
    held = {(worker.id, key) for worker in pool.workers.values() for key in worker.results}
    holding = {(h, key) for key, r in table.records.items() if r.phase == "done" for h in r.holders}
    if held != holding:
        raise InvariantError("workers hold all and only the done results that name them")


def _check_runs(table: InvocationTable) -> None:
    counts: dict[str, int] = {}
    for run in table.runs.values():
        if run.is_closed and not run.members:
            raise InvariantError(f"run {run.id} is closed and empty, and still listed")
        if not run.is_closed:
            counts[run.tenant] = counts.get(run.tenant, 0) + 1
    if dict(table.open_runs()) != counts:
        raise InvariantError("open_runs counts the open runs of each tenant")
    if sum(len(run.members) for run in table.runs.values()) != len(table.records):
        raise InvariantError("runs list all and only the records")
