"""vTime accounts of one lane."""

from __future__ import annotations

from comfyserverless.core.ids import TenantId
from comfyserverless.scheduling.ledger import LaneLedger, Ledger

A, B = TenantId("A"), TenantId("B")


def test_a_measurement_replaces_the_estimate() -> None:
    ledger = LaneLedger(0.0, {})
    charge_s = ledger.charge(A, 2.0, 0.0)
    assert ledger.v_time_s(A) == 2.0
    ledger.settle(A, charge_s, 3.5)
    assert ledger.v_time_s(A) == 3.5


def test_vtime_advances_by_cost_over_weight() -> None:
    ledger = LaneLedger(0.0, {A: 4.0})
    charge_s = ledger.charge(A, 2.0, 0.0)
    assert (charge_s, ledger.v_time_s(A)) == (0.5, 0.5)
    ledger.settle(A, charge_s, 4.0)
    assert ledger.v_time_s(A) == 1.0


def test_a_lost_run_costs_what_it_held_and_never_more_than_its_charge() -> None:
    ledger = LaneLedger(0.0, {})
    ledger.refund_lost(A, ledger.charge(A, 2.0, 0.0), 0.5)
    assert ledger.v_time_s(A) == 0.5
    ledger.refund_lost(A, ledger.charge(A, 2.0, 0.0), 90.0)
    assert ledger.v_time_s(A) == 2.5


def test_the_virtual_time_never_falls_and_lifts_who_comes() -> None:
    ledger = LaneLedger(0.0, {})
    ledger.charge(A, 2.0, 5.0)
    ledger.charge(A, 2.0, 4.0)
    ledger.activate(B)
    assert ledger.v_time_s(B) == 5.0


def test_coming_back_never_lowers_a_vtime() -> None:
    ledger = LaneLedger(0.0, {})
    ledger.charge(A, 2.0, 0.0)
    ledger.activate(A)
    ledger.enter(A)
    assert ledger.v_time_s(A) == 2.0


def test_credit_is_bounded_by_slack_and_the_largest_charge() -> None:
    ledger = LaneLedger(0.5, {})
    for _ in range(10):
        ledger.charge(A, 3.0, 0.0)
    ledger.enter(B)
    assert ledger.v_time_s(B) == 30.0 - 0.5 - 3.0


def test_lanes_have_accounts_of_their_own() -> None:
    ledger = Ledger(0.0, {})
    ledger.lanes["cpu"].charge(A, 9.0, 7.0)
    ledger.activate(B)
    assert ledger.lanes["cpu"].snapshot() == {A: 9.0, B: 7.0}
    assert ledger.lanes["gpu"].snapshot() == {B: 0.0}


def test_waiting_is_kept_apart_from_service() -> None:
    ledger = Ledger(0.0, {})
    ledger.lanes["gpu"].settle(A, ledger.lanes["gpu"].charge(A, 2.0, 0.0), 1.0)
    ledger.lanes["gpu"].note_wait(A, 5.0)
    assert (ledger.service_s(A), ledger.waited_s(A)) == ({"gpu": 1.0, "cpu": 0.0}, {"gpu": 5.0, "cpu": 0.0})
    assert ledger.lanes["gpu"].v_time_s(A) == 1.0
    assert ledger.waited_s(B) == {"gpu": 0.0, "cpu": 0.0}
