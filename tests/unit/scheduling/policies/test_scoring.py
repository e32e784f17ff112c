"""The score of ready invocations."""

from __future__ import annotations

from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.scheduling.invocations import InvocationRecord, RunRecord
from comfyserverless.scheduling.policies.scoring import best
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
