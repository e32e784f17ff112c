"""Prompts begun for each tenant are counted, not what they cost."""

from __future__ import annotations

from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.scheduling.invocations import InvocationRecord, RunRecord
from tests.support.scheduling_policies import Desk, ready


def _prompt(tenant: str, *orders: int) -> list[InvocationRecord]:
    run = RunRecord(PromptId(f"{tenant}{orders[0]}"), TenantId(tenant), 0.0)
    return [ready(order, tenant, run=run) for order in orders]


def test_tenants_get_as_many_prompts_however_long_they_are() -> None:
    long, other = _prompt("A", 1, 2, 3), _prompt("A", 4, 5, 6)
    short = [record for order in (7, 8, 9) for record in _prompt("B", order)]
    assert Desk("request-count", *long, *other, *short).orders(9) == [1, 2, 3, 7, 4, 5, 6, 8, 9]


def test_who_comes_late_has_one_prompt_ahead_and_not_those_that_it_missed() -> None:
    desk = Desk("request-count", *(record for order in range(1, 6) for record in _prompt("A", order)))
    assert desk.orders(3) == [1, 2, 3]
    desk.add(*_prompt("B", 11), *_prompt("B", 12), *_prompt("B", 13))
    assert desk.orders(5) == [11, 4, 12, 5, 13]
