"""Fairness filter and score."""

from __future__ import annotations

from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.scheduling.backlog import Backlog
from comfyserverless.scheduling.invocations import InvocationRecord, RunRecord
from comfyserverless.scheduling.ledger import LaneLedger
from comfyserverless.scheduling.scoring import best, choose
from tests.support.scheduling import spec


def _record(
    order: int,
    *,
    opened_at_s: float = 0.0,
    remaining_s: float = 1.0,
    estimate_s: float = 1.0,
    tenant: str = "A",
) -> InvocationRecord:
    run = RunRecord(PromptId(f"r{order}"), TenantId(tenant), opened_at_s, longest_s=remaining_s)
    return InvocationRecord(spec(f"i{order}", tenant=tenant), order, run, (), (), estimate_s, head_s=0.0)


def test_the_run_that_waits_longest_wins_if_all_else_is_equal() -> None:
    young, old = _record(1, opened_at_s=5.0), _record(2, opened_at_s=1.0)
    assert best([young, old], at_s=6.0) is old


def test_the_shorter_remaining_path_wins_if_all_else_is_equal() -> None:
    far, near = _record(1, remaining_s=9.0), _record(2, remaining_s=2.0)
    assert best([far, near], at_s=6.0) is near


def test_the_shorter_call_wins_if_all_else_is_equal() -> None:
    slow, quick = _record(1, estimate_s=3.0), _record(2, estimate_s=0.5)
    assert best([slow, quick], at_s=6.0) is quick


def test_each_term_counts_relative_to_its_largest_value() -> None:
    # 1.0 - 1.0 - 1.0 = -1.0 against 0.5 - 0.25 - 1.0 = -0.75
    old, near = _record(1, opened_at_s=0.0, remaining_s=8.0), _record(2, opened_at_s=5.0, remaining_s=2.0)
    assert best([old, near], at_s=10.0) is near
    # 1.0 - 1.0 - 1.0 = -1.0 against 0.1 - 0.25 - 1.0 = -1.15
    newer = _record(2, opened_at_s=9.0, remaining_s=2.0)
    assert best([old, newer], at_s=10.0) is old


def test_equal_scores_go_by_submission_order() -> None:
    records = [_record(3), _record(1), _record(2)]
    assert best(records, at_s=0.0).order == 1


def _backlog(*records: InvocationRecord) -> Backlog:
    backlog = Backlog()
    for record in records:
        backlog.add(record)
    return backlog


def _ledger(**v_times_s: float) -> LaneLedger:
    ledger = LaneLedger(0.0, {})
    for tenant, v_time_s in v_times_s.items():
        ledger.charge(TenantId(tenant), v_time_s, 0.0)
    return ledger


def test_a_tenant_beyond_the_slack_does_not_compete_however_old_its_run() -> None:
    backlog = _backlog(_record(1, opened_at_s=0.0, tenant="A"), _record(2, opened_at_s=9.0, tenant="B"))
    ledger = _ledger(A=3.0, B=1.0)
    assert choose(backlog, "gpu", ledger, window=8, slack_s=1.9, at_s=9.0).record.order == 2
    choice = choose(backlog, "gpu", ledger, window=8, slack_s=2.0, at_s=9.0)
    assert (choice.record.order, choice.least_s) == (1, 1.0)


def test_the_last_bits_of_a_sum_do_not_decide_whose_turn_it_is() -> None:
    backlog = _backlog(_record(1, tenant="A"), _record(2, tenant="B"))
    ledger = _ledger(A=0.1 + 0.2, B=0.3)
    assert choose(backlog, "gpu", ledger, window=8, slack_s=0.0, at_s=1.0).record.order == 1


def test_the_window_takes_the_oldest_of_every_candidate_tenant() -> None:
    many = [_record(order, remaining_s=100.0 - order, tenant="A") for order in range(1, 50)]
    single = _record(99, remaining_s=98.0, tenant="B")
    choice = choose(_backlog(*many, single), "gpu", _ledger(), window=8, slack_s=0.0, at_s=0.0)
    assert choice.record.order == 4
