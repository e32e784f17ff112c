"""Stories about tenants: whose turn it is."""

from __future__ import annotations

from comfyserverless.core.ids import TenantId
from tests.support.scheduling import Story, start


def _run_all(story: Story, order: list[str], cost_s: float = 1.0) -> list[str]:
    """Finish what runs, one after another, and return everything in order of completion."""
    finished: list[str] = []
    while order:
        name = order.pop(0)
        story.now_s += cost_s
        finished.append(name)
        order += [
            str(each.invocation) for each in story.finish(name, cost_s) if isinstance(each, type(start("x")))
        ]
    return finished


PROMPTS = ("A1", "A2", "B1", "C1", "C2", "A3")


def test_equal_prompts_of_three_tenants_take_turns_when_all_wait_before_the_worker_comes() -> None:
    story = Story()
    for prompt in PROMPTS:
        assert story.submit(prompt, run=prompt, tenant=prompt[0]) == []
    assert story.join() == [start("A1")]
    assert _run_all(story, ["A1"]) == ["A1", "B1", "C1", "A2", "C2", "A3"]


def test_equal_prompts_of_three_tenants_take_turns_when_they_arrive_at_a_busy_worker() -> None:
    story = Story()
    story.join()
    for prompt in PROMPTS:
        story.now_s += 0.01
        out = story.submit(prompt, run=prompt, tenant=prompt[0])
        assert out == ([start("A1")] if prompt == "A1" else [])
    assert _run_all(story, ["A1"]) == ["A1", "B1", "C1", "A2", "C2", "A3"]


def test_equal_prompts_of_three_steps_finish_in_the_same_turns() -> None:
    story = Story()
    for prompt in PROMPTS:
        story.chain(f"{prompt}.0", f"{prompt}.1", f"{prompt}.2", run=prompt, tenant=prompt[0])
    story.join()
    ends = [name[:2] for name in _run_all(story, ["A1.0"]) if name.endswith(".2")]
    assert ends == ["A1", "B1", "C1", "A2", "C2", "A3"]


def test_a_tenant_whose_call_took_longer_than_estimated_waits_until_the_other_caught_up() -> None:
    story = Story(default_cost_s=1.0)
    for prompt in ("A1", "A2", "B1", "B2", "B3", "B4"):
        story.submit(prompt, run=prompt, tenant=prompt[0], key=prompt)
    assert story.join() == [start("A1")]
    assert story.finish("A1", 3.0) == [start("B1")]
    assert story.v_time_s("A") == 3.0
    assert story.finish("B1", 1.0) == [start("B2")]
    assert story.finish("B2", 1.0) == [start("B3")]
    assert story.finish("B3", 1.5) == [start("A2")]


def test_slack_lets_a_tenant_run_ahead_while_its_score_is_better() -> None:
    story = Story(slack_s=1.0)
    for prompt in ("A1", "A2", "A3", "B1"):
        story.now_s += 1.0
        story.submit(prompt, run=prompt, tenant=prompt[0])
    assert story.join() == [start("A1")]
    assert story.finish("A1") == [start("A2")]
    assert story.finish("A2") == [start("B1")]


def test_a_new_tenant_starts_at_the_virtual_time_and_does_not_starve_the_others() -> None:
    story = Story()
    story.join()
    for index in range(6):
        story.submit(f"A{index}", run=f"A{index}")
    for index in range(3):
        story.finish(f"A{index}")
    assert story.v_time_s("A") == 4.0
    for index in range(3):
        story.submit(f"B{index}", run=f"B{index}", tenant="B")
    assert story.v_time_s("B") == 3.0
    assert story.finish("A3") == [start("B0")]
    assert story.finish("B0") == [start("A4")]
    assert story.finish("A4") == [start("B1")]


def test_a_returning_tenant_is_lifted_and_cannot_spend_the_time_it_was_away() -> None:
    story = Story()
    story.join()
    story.submit("B0", run="B0", tenant="B")
    story.finish("B0")
    story.close("B0")
    for index in range(8):
        story.submit(f"A{index}", run=f"A{index}")
    for index in range(5):
        story.finish(f"A{index}")
    assert (story.v_time_s("A"), story.v_time_s("B")) == (6.0, 1.0)
    story.submit("B1", run="B1", tenant="B")
    story.submit("B2", run="B2", tenant="B")
    assert story.v_time_s("B") == 5.0
    assert story.finish("A5") == [start("B1")]
    assert story.finish("B1") == [start("A6")]


def test_a_tenant_that_was_away_for_longer_than_the_grace_starts_at_the_virtual_time() -> None:
    for away_s, v_time_s in ((2.0, 1.0), (2.5, 5.0)):
        story = Story(slack_s=10.0, grace_s=2.0)
        story.join()
        story.submit("B0", run="B0", tenant="B")
        story.finish("B0")
        story.close("B0")
        for index in range(8):
            story.submit(f"A{index}", run="A")
        for index in range(5):
            story.finish(f"A{index}")
        story.now_s += away_s
        story.submit("B1", run="B1", tenant="B")
        assert story.v_time_s("B") == v_time_s


def test_a_tenant_that_could_use_one_slot_only_saves_up_at_most_slack_and_one_charge() -> None:
    story = Story(slack_s=1.0)
    story.join("w0", gpu=1)
    story.join("w1", gpu=3)
    chain = [f"B{index}" for index in range(21)]
    story.chain(*chain, run="B", tenant="B")
    for index in range(100):
        story.submit(f"A{index}", run="A")
    served = 0
    for name in chain[:20]:
        for busy in [f"A{index}" for index in range(served, served + 3)]:
            story.finish(busy)
        served += 3
        story.finish(name)
    assert story.v_time_s("A") - story.v_time_s("B") <= 1.0 + 1.0


def test_a_tenant_with_twice_the_weight_gets_twice_the_turns() -> None:
    story = Story(tenant_weights={TenantId("A"): 2.0})
    for index in range(6):
        story.submit(f"A{index}", run=f"A{index}")
        story.submit(f"B{index}", run=f"B{index}", tenant="B")
    story.join()
    finished = _run_all(story, ["A0"])
    assert [name[0] for name in finished[:9]].count("A") == 6


def test_seconds_in_the_cpu_lane_are_charged_there_and_cost_no_turn_on_the_gpu() -> None:
    story = Story()
    story.join()
    story.submit("A1", run="A", lane="cpu")
    story.submit("A2", run="A", lane="cpu")
    story.submit("B1", run="B", tenant="B", lane="cpu")
    assert story.finish("A1", 9.0) == [start("B1", lane="cpu")]
    assert (story.v_time_s("A", "cpu"), story.v_time_s("A", "gpu")) == (9.0, 0.0)
    assert story.submit("A3", run="A") == [start("A3")]


def test_failed_and_cancelled_calls_are_charged_what_they_used() -> None:
    story = Story()
    story.join()
    story.submit("A1", run="A")
    story.fail("A1", 0.25)
    assert story.v_time_s("A") == 0.25
    story.submit("A2", run="A2")
    story.close("A2")
    story.cancelled("A2", 0.5)
    assert story.v_time_s("A") == 0.75


def test_a_lost_run_is_charged_while_its_worker_lived_and_at_most_the_estimate_for_silence() -> None:
    story = Story(default_cost_s=2.0)
    story.join()
    story.submit("A1")
    story.now_s += 0.5
    story.lose()
    assert story.v_time_s("A") == 0.5
    story.join("w2")
    story.now_s += 60.0
    story.lose("w2", silent_s=60.0)
    assert story.v_time_s("A") == 2.5


def test_a_call_that_holds_its_lane_for_long_and_then_kills_its_worker_pays_for_all_of_it() -> None:
    story = Story(default_cost_s=2.0)
    story.join()
    story.submit("A1")
    story.now_s += 60.0
    story.lose("w", silent_s=1.5)
    assert story.v_time_s("A") == 58.5
    assert story.services[0].charged_s == 58.5


def test_a_changed_weight_holds_within_a_second_also_for_who_waits_all_the_time() -> None:
    weights = {TenantId("A"): 0.001}
    story = Story(tenant_weights=weights)
    story.submit("A0", run="A0")
    story.join()
    for index in range(6):
        story.submit(f"A{index + 1}", run=f"A{index + 1}")
        story.submit(f"B{index}", run=f"B{index}", tenant="B")
    story.now_s = 0.9
    assert story.finish("A0") == [start("B0")]
    weights[TenantId("A")] = 1.0
    story.now_s = 1.9
    assert story.finish("B0") == [start("A1")], "it is one second ahead now, and no thousand"
