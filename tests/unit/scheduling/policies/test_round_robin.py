"""One invocation of each tenant in turn."""

from __future__ import annotations

from tests.support.scheduling_policies import Desk, ready


def test_tenants_take_turns_whatever_their_invocations_cost() -> None:
    records = [ready(1, "A"), ready(2, "A"), ready(3, "A"), ready(4, "B"), ready(5, "B"), ready(6, "C")]
    assert Desk("round-robin", *records).orders(6) == [1, 4, 6, 2, 5, 3]


def test_who_was_away_has_one_turn_and_not_those_that_it_missed() -> None:
    desk = Desk("round-robin", ready(1, "B"), *(ready(order, "A") for order in range(2, 8)))
    assert desk.orders(4) == [1, 2, 3, 4]
    desk.add(ready(8, "B"), ready(9, "B"))
    assert desk.orders(4) == [8, 5, 9, 6]
