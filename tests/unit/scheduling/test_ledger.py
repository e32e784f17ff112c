"""vTime accounts of one lane."""

from __future__ import annotations

from comfyserverless.core.ids import TenantId
from comfyserverless.scheduling.ledger import LaneLedger, Ledger

A, B, C = (TenantId(name) for name in "ABC")


def test_a_measurement_replaces_the_estimate() -> None:
    ledger = LaneLedger(0.0, {})
    ledger.charge(A, 2.0, 0.0)
    assert ledger.v_time_s(A) == 2.0
    ledger.settle(A, 2.0, 3.5)
    assert ledger.v_time_s(A) == 3.5


def test_vtime_advances_by_cost_over_weight() -> None:
    ledger = LaneLedger(0.0, {A: 4.0})
    ledger.charge(A, 2.0, 0.0)
    assert ledger.v_time_s(A) == 0.5
    ledger.settle(A, 2.0, 4.0)
    assert ledger.v_time_s(A) == 1.0


def test_the_virtual_time_never_falls_and_lifts_who_comes() -> None:
    ledger = LaneLedger(0.0, {})
    ledger.charge(A, 2.0, 5.0)
    ledger.charge(A, 2.0, 4.0)
    ledger.activate(B)
    assert ledger.v_time_s(B) == 5.0


def test_who_was_away_for_less_than_the_grace_did_not_come_back() -> None:
    ledger = Ledger(0.0, {}, grace_s=2.0)
    ledger.lanes["gpu"].charge(A, 2.0, 5.0)
    ledger.activate(B, away_s=2.0)
    assert ledger.lanes["gpu"].v_time_s(B) == 0.0
    ledger.activate(B, away_s=2.1)
    assert ledger.lanes["gpu"].v_time_s(B) == 5.0


def test_coming_back_never_lowers_a_vtime() -> None:
    ledger = LaneLedger(0.0, {})
    ledger.charge(A, 2.0, 0.0)
    ledger.activate(A)
    ledger.enter(A)
    assert ledger.v_time_s(A) == 2.0


def test_credit_is_bounded_by_the_slack_and_the_charge_in_flight() -> None:
    ledger = LaneLedger(0.5, {})
    for _ in range(10):
        ledger.charge(A, 3.0, 0.0)
    ledger.enter(B)
    assert ledger.v_time_s(A) - ledger.v_time_s(B) == 0.5 + 3.0


def test_a_large_charge_of_one_tenant_is_no_credit_of_the_others() -> None:
    ledger = LaneLedger(0.5, {C: 0.001})
    ledger.charge(C, 1.0, 0.0)
    for _ in range(10):
        ledger.charge(A, 3.0, 0.0)
    ledger.enter(B)
    assert (ledger.v_time_s(A), ledger.v_time_s(C)) == (30.0, 1000.0)
    assert ledger.v_time_s(B) == 30.0 - 3.0 - 0.5


def test_a_new_weight_keeps_the_seconds_of_service_that_a_tenant_is_ahead() -> None:
    weights = {A: 0.001}
    ledger = Ledger(0.0, weights)
    for tenant in (A, B):
        ledger.activate(tenant)
    lane = ledger.lanes["gpu"]
    lane.charge(A, 2.0, 5.0)
    weights[A] = 2.0
    assert ledger.weight(A) == 0.001
    ledger.refresh((A, B))
    assert (ledger.weight(A), lane.v_time_s(A), lane.v_time_s(B)) == (2.0, 5.0 + (2000.0 - 5.0) * 0.0005, 0.0)
    lane.settle(A, 2.0, 4.0)
    assert lane.v_time_s(A) == 5.0 + (2000.0 - 5.0) * 0.0005 - 1.0 + 2.0


def test_lanes_have_accounts_of_their_own() -> None:
    ledger = Ledger(0.0, {})
    ledger.lanes["cpu"].charge(A, 9.0, 7.0)
    ledger.activate(B)
    assert ledger.lanes["cpu"].snapshot() == {A: 9.0, B: 7.0}
    assert ledger.lanes["gpu"].snapshot() == {B: 0.0}


def test_waiting_is_kept_apart_from_service() -> None:
    ledger = Ledger(0.0, {})
    ledger.lanes["gpu"].charge(A, 2.0, 0.0)
    ledger.lanes["gpu"].settle(A, 2.0, 1.0)
    ledger.lanes["gpu"].note_wait(A, 5.0)
    assert (ledger.service_s(A)["gpu"], ledger.waited_s(A)["gpu"]) == (1.0, 5.0)
    assert (ledger.service_s(A)["cpu"], ledger.waited_s(A)["cpu"]) == (0.0, 0.0)
    assert ledger.lanes["gpu"].v_time_s(A) == 1.0
    assert set(ledger.waited_s(B).values()) == {0.0}
