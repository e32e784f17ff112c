"""The shortest remaining run first."""

from __future__ import annotations

from tests.support.scheduling_policies import Desk, ledger_with, ready


def test_the_run_with_the_least_left_goes_first_whatever_its_tenant_had() -> None:
    records = [ready(1, "A", remaining_s=5.0), ready(2, "B", remaining_s=0.5), ready(3, "A", remaining_s=2.0)]
    desk = Desk("sjf", *records)
    desk.ledger = ledger_with(B=100.0)
    assert desk.orders(3) == [2, 3, 1]
