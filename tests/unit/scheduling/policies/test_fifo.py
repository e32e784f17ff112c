"""Whole runs in order of arrival."""

from __future__ import annotations

from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.scheduling.invocations import RunRecord
from tests.support.scheduling_policies import Desk, ledger_with, ready


def test_the_run_that_was_opened_first_goes_first_whatever_its_tenant_had() -> None:
    first = RunRecord(PromptId("first"), TenantId("A"), 1.0)
    desk = Desk("fifo", ready(1, "B", opened_at_s=2.0), ready(2, run=first), ready(3, run=first))
    desk.ledger = ledger_with(A=100.0)
    choice = desk.choose()
    assert (choice.record.order, choice.least_s) == (2, 0.0)
    desk.add(ready(4, run=first))
    assert desk.orders(3) == [3, 4, 1]
