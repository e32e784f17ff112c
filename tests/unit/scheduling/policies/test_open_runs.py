"""How many runs a tenant may have open."""

from __future__ import annotations

from comfyserverless.scheduling.policies.open_runs import MOST_URGENT, Line, is_one_queue, most_running


def test_a_tenant_has_as_many_runs_open_as_there_are_workers_whatever_others_have() -> None:
    assert most_running(Line(0, 0, None), "vtime", 2, running_of_all=9) == 2
    assert most_running(Line(2, 0, 0), "vtime", 2, running_of_all=2) == 2


def test_a_more_urgent_prompt_begins_beside_what_runs() -> None:
    assert most_running(Line(2, 1, 0), "vtime", 2, running_of_all=2) == 2 + MOST_URGENT
    assert most_running(Line(3, 1, 1), "vtime", 2, running_of_all=3) == 2
    assert most_running(Line(2 + MOST_URGENT, 9, 8), "vtime", 2, running_of_all=9) == 2 + MOST_URGENT
    assert most_running(Line(0, 5, None), "vtime", 2, running_of_all=0) == 2


def test_with_one_queue_the_runs_of_all_share_the_workers() -> None:
    assert is_one_queue("fifo")
    assert not is_one_queue("sjf")
    assert most_running(Line(0, 0, None), "fifo", 2, running_of_all=2) == 0
    assert most_running(Line(1, 9, 0), "fifo", 2, running_of_all=1) == 2
    assert most_running(Line(3, 0, 0), "fifo", 2, running_of_all=4) == 3
