"""The order of prompts and where their records are."""

from __future__ import annotations

from comfyserverless.control.queue import PromptQueue
from comfyserverless.control.views import RunRecord
from comfyserverless.core.ids import DEFAULT_TENANT, PromptId, TenantId
from comfyserverless.graph.plan import Plan

PLAN = Plan({}, (), {})


def record(name: str, number: float = 0, tenant: TenantId = DEFAULT_TENANT) -> RunRecord:
    return RunRecord(PromptId(name), tenant, number, {}, {}, (), None, 0)


def ids(records: list[RunRecord]) -> list[str]:
    return [each.prompt_id for each in records]


def test_lower_numbers_run_first_and_ties_by_arrival() -> None:
    queue = PromptQueue(10)
    for name, number in (("a", 1), ("b", 0), ("c", 1), ("d", -2.5)):
        queue.add(record(name, number), PLAN)
    assert ids(queue.pending(DEFAULT_TENANT)) == ["d", "b", "a", "c"]
    taken = queue.take(DEFAULT_TENANT)
    assert taken is not None
    assert taken[0].prompt_id == "d"
    assert queue.remaining(DEFAULT_TENANT) == 4


def test_record_is_found_wherever_it_is() -> None:
    queue = PromptQueue(10)
    queue.add(record("a"), PLAN)
    for _ in range(2):
        found = queue.find(DEFAULT_TENANT, PromptId("a"))
        assert found is not None
        taken = queue.take(DEFAULT_TENANT)
    assert taken is None
    queue.end(found)
    assert queue.find(DEFAULT_TENANT, PromptId("a")) is found
    assert queue.running(DEFAULT_TENANT) == []


def test_another_tenant_sees_nothing() -> None:
    queue = PromptQueue(10)
    queue.add(record("a"), PLAN)
    other = TenantId("other")
    assert queue.find(other, PromptId("a")) is None
    assert queue.drop_pending(other, None) == 0
    assert queue.take(other) is None
    assert queue.remaining(DEFAULT_TENANT) == 1


def test_history_is_bounded_and_drops_the_oldest() -> None:
    queue = PromptQueue(2)
    for name in "abc":
        queue.add(record(name), PLAN)
        taken = queue.take(DEFAULT_TENANT)
        assert taken is not None
        queue.end(taken[0])
    assert ids(queue.history(DEFAULT_TENANT)) == ["b", "c"]
    queue.drop_history(DEFAULT_TENANT, [PromptId("b"), PromptId("zzz")])
    assert ids(queue.history(DEFAULT_TENANT)) == ["c"]


def test_only_pending_prompts_are_deleted() -> None:
    queue = PromptQueue(2)
    for name in "abc":
        queue.add(record(name), PLAN)
    queue.take(DEFAULT_TENANT)
    assert queue.drop_pending(DEFAULT_TENANT, {PromptId("a"), PromptId("c")}) == 1
    assert ids(queue.pending(DEFAULT_TENANT)) == ["b"]
    assert ids(queue.running(DEFAULT_TENANT)) == ["a"]
