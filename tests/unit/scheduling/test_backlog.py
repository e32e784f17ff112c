"""The index of ready invocations."""

from __future__ import annotations

from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.scheduling.backlog import Backlog
from comfyserverless.scheduling.invocations import InvocationRecord, RunRecord
from tests.support.scheduling import spec

A = TenantId("A")


def _record(order: int, priority: int = 0) -> InvocationRecord:
    run = RunRecord(PromptId("r"), A, 0.0)
    return InvocationRecord(spec(f"i{order}", priority=priority), order, run, (), (), 1.0, 0.0)


def test_adding_tells_whether_the_tenant_had_nothing_ready() -> None:
    backlog = Backlog()
    first, second = _record(1), _record(2)
    assert backlog.add(second)
    assert not backlog.add(first)
    backlog.remove(first)
    backlog.remove(second)
    assert backlog.lanes["gpu"] == {}
    assert backlog.add(first)


def test_the_oldest_come_first_in_whatever_order_they_got_ready() -> None:
    backlog = Backlog()
    for order in (5, 1, 4, 2, 3):
        backlog.add(_record(order))
    assert [record.order for record in backlog.first("gpu", A, 3)] == [1, 2, 3]
    assert [record.order for record in backlog.records()] == [1, 2, 3, 4, 5]


def test_only_the_highest_priority_comes_first_and_the_next_one_when_it_is_gone() -> None:
    backlog = Backlog()
    for order, priority in ((1, 0), (2, 5), (3, -1), (4, 5), (5, 0)):
        backlog.add(_record(order, priority))
    urgent = backlog.first("gpu", A, 4)
    assert [record.order for record in urgent] == [2, 4]
    for record in urgent:
        backlog.remove(record)
    assert [record.order for record in backlog.first("gpu", A, 4)] == [1, 5]
    assert [record.order for record in backlog.records()] == [1, 3, 5]
