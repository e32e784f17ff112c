"""The fairness filter over vTime."""

from __future__ import annotations

from tests.support.scheduling_policies import Desk, ledger_with, ready


def test_a_tenant_beyond_the_slack_does_not_compete_however_old_its_run() -> None:
    for slack_s, chosen in ((1.9, 2), (2.0, 1)):
        desk = Desk("vtime", ready(1, "A"), ready(2, "B", opened_at_s=9.0), slack_s=slack_s)
        desk.ledger = ledger_with(A=3.0, B=1.0)
        choice = desk.choose(at_s=9.0)
        assert (choice.record.order, choice.least_s) == (chosen, 1.0)


def test_the_last_bits_of_a_sum_do_not_decide_whose_turn_it_is() -> None:
    desk = Desk("vtime", ready(1, "A"), ready(2, "B"))
    desk.ledger = ledger_with(A=0.1 + 0.2, B=0.3)
    assert desk.choose(at_s=1.0).record.order == 1


def test_the_window_takes_the_oldest_of_every_candidate_tenant() -> None:
    many = [ready(order, "A", remaining_s=100.0 - order) for order in range(1, 50)]
    desk = Desk("vtime", *many, ready(99, "B", remaining_s=98.0), score_window=8)
    assert desk.choose().record.order == 4


def test_priority_orders_the_work_of_one_tenant_and_buys_no_turn_from_another() -> None:
    desk = Desk("vtime", ready(1, "A"), ready(2, "A", priority=100), ready(3, "B"))
    desk.ledger = ledger_with(A=1.0, B=0.0)
    assert desk.orders(3) == [3, 2, 1]
