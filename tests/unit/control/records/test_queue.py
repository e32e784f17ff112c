"""The order of prompts and where their records are."""

from __future__ import annotations

from comfyserverless.control.records.queue import PromptQueue
from comfyserverless.control.views import RunRecord
from comfyserverless.core.ids import DEFAULT_TENANT, PromptId, TenantId
from comfyserverless.graph.plan import Plan
from comfyserverless.scheduling.policies.open_runs import Line

PLAN = Plan({}, (), {})


def record(name: str, number: float = 0, tenant: TenantId = DEFAULT_TENANT, *, priority: int = 0) -> RunRecord:
    return RunRecord(PromptId(name), tenant, number, {}, {}, (), None, 0, priority=priority)


def ids(records: list[RunRecord]) -> list[str]:
    return [each.prompt_id for each in records]


def test_lower_numbers_run_first_and_ties_by_arrival() -> None:
    queue = PromptQueue()
    for name, number in (("a", 1), ("b", 0), ("c", 1), ("d", -2.5)):
        queue.add(record(name, number), PLAN)
    assert ids(queue.pending(DEFAULT_TENANT)) == ["d", "b", "a", "c"]
    taken = queue.take(DEFAULT_TENANT)
    assert taken is not None
    assert taken[0].prompt_id == "d"
    assert queue.remaining(DEFAULT_TENANT) == 4


def test_higher_priority_runs_first_whatever_the_number() -> None:
    queue = PromptQueue()
    for name, number, priority in (("a", -5, 0), ("b", 0, 3), ("c", -9, -1), ("d", -1, 3)):
        queue.add(record(name, number, priority=priority), PLAN)
    assert ids(queue.pending(DEFAULT_TENANT)) == ["d", "b", "a", "c"]


def test_line_tells_what_runs_and_what_comes_next() -> None:
    queue = PromptQueue()
    queue.add(record("a"), PLAN)
    assert queue.line(DEFAULT_TENANT) == Line(0, 0, None)
    queue.take(DEFAULT_TENANT)
    queue.add(record("b", priority=2), PLAN)
    assert queue.line(DEFAULT_TENANT) == Line(1, 2, 0)


def test_tenants_that_wait_are_listed_as_they_first_came_or_as_their_next_prompt_did() -> None:
    queue = PromptQueue()
    one, other, third = (TenantId(name) for name in ("one", "other", "third"))
    for name, tenant in (("a", one), ("b", other), ("c", one), ("d", third)):
        queue.add(record(name, tenant=tenant), PLAN)
    for tenant in (one, third):
        queue.take(tenant)
    assert list(queue.waiting(by_arrival=False)) == [one, other]
    assert list(queue.waiting(by_arrival=True)) == [other, one]
    assert queue.running_count() == 2


def test_record_is_found_wherever_it_is() -> None:
    queue = PromptQueue()
    queue.add(record("a"), PLAN)
    for _ in range(2):
        found = queue.find(DEFAULT_TENANT, PromptId("a"))
        assert found is not None
        taken = queue.take(DEFAULT_TENANT)
    assert taken is None
    queue.end(found)
    assert queue.find(DEFAULT_TENANT, PromptId("a")) is None
    assert queue.running(DEFAULT_TENANT) == []


def test_another_tenant_sees_nothing() -> None:
    queue = PromptQueue()
    queue.add(record("a"), PLAN)
    other = TenantId("other")
    assert queue.find(other, PromptId("a")) is None
    assert queue.drop_pending(other, None) == []
    assert queue.take(other) is None
    assert queue.remaining(DEFAULT_TENANT) == 1


def test_only_pending_prompts_are_deleted() -> None:
    queue = PromptQueue()
    for name in "abc":
        queue.add(record(name), PLAN)
    queue.take(DEFAULT_TENANT)
    assert queue.drop_pending(DEFAULT_TENANT, {PromptId("a"), PromptId("c")}) == ["c"]
    assert ids(queue.pending(DEFAULT_TENANT)) == ["b"]
    assert ids(queue.running(DEFAULT_TENANT)) == ["a"]


def test_several_dropped_prompts_leave_the_others_in_order() -> None:
    queue = PromptQueue()
    for name, number in (("a", 3), ("b", 1), ("c", 2), ("d", 1)):
        queue.add(record(name, number), PLAN)
    assert queue.drop_pending(DEFAULT_TENANT, [PromptId(name) for name in ("c", "b", "c", "x")]) == ["c", "b"]
    assert ids(queue.pending(DEFAULT_TENANT)) == ["d", "a"]
    queue.add(record("e", 2), PLAN)
    assert ids(queue.pending(DEFAULT_TENANT)) == ["d", "e", "a"]


def test_reserved_prompt_counts_and_holds_its_id_and_is_not_pending_yet() -> None:
    queue = PromptQueue()
    reserved = record("a")
    queue.reserve(reserved)
    assert queue.holder(DEFAULT_TENANT, PromptId("a")) is reserved
    assert queue.find(DEFAULT_TENANT, PromptId("a")) is None
    assert (queue.pending_count(DEFAULT_TENANT), queue.remaining(DEFAULT_TENANT)) == (1, 0)
    assert queue.take(DEFAULT_TENANT) is None
    queue.withdraw(reserved)
    assert queue.holder(DEFAULT_TENANT, PromptId("a")) is None
    queue.reserve(reserved)
    queue.add(reserved, PLAN)
    assert (queue.pending_count(DEFAULT_TENANT), queue.remaining(DEFAULT_TENANT)) == (1, 1)


def test_only_so_many_pending_prompts_are_listed_as_somebody_wants() -> None:
    queue = PromptQueue()
    for name in "abc":
        queue.add(record(name), PLAN)
    assert ids(queue.pending(DEFAULT_TENANT, 2)) == ["a", "b"]
    assert ids(queue.pending(DEFAULT_TENANT)) == ["a", "b", "c"]
