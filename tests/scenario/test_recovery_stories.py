"""Stories about lost workers: what is run again, what is not."""

from __future__ import annotations

import pytest

from comfyserverless.core.errors import InvariantError
from comfyserverless.core.ids import InvocationId
from tests.support.scheduling import Story, abandon, cancel, drop, forget, start


def test_a_worker_lost_while_it_runs_the_first_call_has_it_run_elsewhere() -> None:
    story = Story()
    story.join("w1")
    story.submit("a")
    story.join("w2")
    assert story.lose("w1") == [start("a", "w2")]


def test_a_worker_lost_in_mid_chain_reruns_exactly_the_steps_whose_results_are_gone() -> None:
    story = Story()
    story.join("w1")
    story.chain("a", "b", "c", "d")
    assert story.finish("a") == [start("b", "w1")]
    assert story.finish("b") == [drop("a"), start("c", "w1")]
    assert story.finish("c") == [drop("b"), start("d", "w1")]
    story.join("w2")
    # d ran there and c's result was there; b and a were dropped long ago and must be made again for c.
    assert story.lose("w1") == [drop("c"), start("a", "w2")]
    assert story.finish("a") == [start("b", "w2")]
    assert story.finish("b") == [drop("a"), start("c", "w2")]
    assert story.finish("c") == [drop("b"), start("d", "w2")]
    assert story.finish("d") == [drop("c")]
    assert story.unpin("d") == [drop("d"), forget("d"), forget("c"), forget("b"), forget("a")]


def test_a_result_held_by_a_live_worker_is_not_made_again() -> None:
    story = Story()
    story.join("w1")
    story.join("w2")
    story.chain("a", "b", "c")
    story.finish("a")
    assert story.finish("b", holders=("w2",)) == [drop("a"), start("c", "w2")]
    assert story.lose("w1") == []
    assert story.lose("w2") == [drop("b")]
    assert story.join("w3") == [start("a", "w3")]


def test_a_lost_result_that_nobody_needs_is_not_made_again() -> None:
    story = Story()
    story.join("w1")
    story.submit("a")
    story.submit("b", needs=("a",))
    story.finish("a")
    story.finish("b")
    story.close()
    assert story.unpin("a") == [drop("a")]
    assert story.unpin("b") == [drop("b"), forget("b"), forget("a")]
    assert story.lose("w1") == []


def test_a_lost_pinned_result_of_a_closed_run_is_rebuilt() -> None:
    story = Story()
    story.join("w1")
    story.chain("a", "b")
    story.finish("a")
    assert story.finish("b") == [drop("a")]
    story.close()
    assert story.lose("w1") == [drop("b")]
    assert story.join("w2") == [start("a", "w2")]
    assert story.finish("a") == [start("b", "w2")]
    assert story.finish("b") == [drop("a")]


def test_a_rebuild_stops_when_the_result_is_unpinned_meanwhile() -> None:
    story = Story()
    story.join("w1")
    story.chain("a", "b")
    story.finish("a")
    story.finish("b")
    story.close()
    story.lose("w1")
    story.join("w2")
    assert story.unpin("b") == [forget("b"), cancel("a", "w2")]
    assert story.cancelled("a") == [forget("a")]
    assert not story.state.table.records


def test_a_dropped_result_is_made_again_for_a_consumer_that_comes_late() -> None:
    story = Story()
    story.join()
    story.chain("a", "b")
    story.finish("a")
    assert story.finish("b") == [drop("a")]
    assert story.submit("c", needs=("a",)) == [start("a")]
    assert story.finish("a") == [start("c")]


def test_a_poison_call_is_abandoned_after_two_lost_workers() -> None:
    story = Story()
    story.submit("a")
    story.submit("b", needs=("a",))
    for attempt in range(2):
        assert story.join(f"w{attempt}") == [start("a", f"w{attempt}")]
        out = story.lose(f"w{attempt}")
        assert out == ([] if attempt < 1 else [abandon("a", 2)])
    assert story.join("w9") == []
    assert story.close() == [forget("b"), forget("a")]


def test_what_ran_beside_a_poison_call_runs_apart_from_it_and_is_not_given_up() -> None:
    story = Story()
    story.join("w1")
    story.submit("poison")
    story.submit("save", run="z", tenant="Z", lane="cpu")
    assert story.lose("w1") == []
    assert story.join("w2") == [start("poison", "w2")]
    assert story.lose("w2") == [abandon("poison", 2)]
    assert story.join("w3") == [start("save", "w3", "cpu")]
    assert story.finish("save") == []


def test_only_the_suspect_is_blamed_for_the_loss_of_a_worker_that_ran_others_too() -> None:
    story = Story()
    story.join("w1")
    story.submit("poison")
    story.lose("w1")
    story.submit("innocent", run="z", tenant="Z", lane="cpu")
    assert story.join("w2") == [start("poison", "w2"), start("innocent", "w2", "cpu")]
    assert story.lose("w2") == [abandon("poison", 2)]
    assert story.join("w3") == [start("innocent", "w3", "cpu")]
    # Had it been blamed, too, this loss would be its second.
    assert story.lose("w3") == []
    assert story.join("w4") == [start("innocent", "w4", "cpu")]


def test_a_suspect_that_is_done_makes_room_for_the_next() -> None:
    story = Story()
    story.join("w1", gpu=2)
    story.submit("a")
    story.submit("b", run="z", tenant="Z")
    story.lose("w1")
    assert story.join("w2", gpu=2) == [start("a", "w2")]
    assert story.finish("a") == [start("b", "w2")]
    assert story.finish("b") == []


def test_attempts_of_a_call_that_was_done_are_not_held_against_it() -> None:
    story = Story(max_attempts=2)
    story.join("w0")
    story.submit("a")
    story.finish("a")
    for attempt in range(1, 5):
        story.join(f"w{attempt}")
        assert story.lose(f"w{attempt - 1}") == [drop("a"), start("a", f"w{attempt}")]
        assert story.finish("a") == []


def _story_with_consumer_elsewhere() -> Story:
    """Have a's result on w1 and let its consumer b run on w2."""
    story = Story()
    story.join("w1")
    story.submit("a")
    story.unpin("a")
    story.submit("b", needs=("a",))
    story.submit("other", run="z", tenant="Z")
    story.finish("a", holders=("w1",))
    assert story.worker_of["other"] == "w1"
    assert story.join("w2") == [start("b", "w2")]
    return story


def test_a_running_consumer_that_fails_after_its_input_was_lost_is_run_again_with_it() -> None:
    story = _story_with_consumer_elsewhere()
    assert story.lose("w1") == [drop("a")]
    # The other tenant has less vTime by now: its call comes first, then the input, then the call that failed.
    assert story.fail("b") == [start("other", "w2")]
    assert not story.state.has_failed(InvocationId("b"))
    assert story.finish("other") == [start("a", "w2")]
    assert story.finish("a") == [start("b", "w2")]
    assert story.finish("b") == [drop("a")]


def test_a_running_consumer_that_finishes_after_its_input_was_lost_needs_nothing_again() -> None:
    story = _story_with_consumer_elsewhere()
    story.lose("w1")
    assert story.finish("b") == [start("other", "w2")]
    assert story.phase("a") == "released"


def test_a_result_whose_holder_was_lost_before_the_report_came_is_made_again() -> None:
    story = Story()
    story.join("w1")
    story.submit("a")
    assert story.finish("a", holders=("w1", "w0")) == [drop("a"), start("a", "w1")]
    assert story.finish("a") == []


def test_the_late_word_of_a_lost_worker_is_ignored() -> None:
    story = Story()
    story.join("w1")
    story.submit("a")
    story.lose("w1")
    assert story.finish("a") == []
    assert story.join("w2") == [start("a", "w2")]


def test_a_report_from_a_worker_that_does_not_run_the_call_raises_with_its_story() -> None:
    story = Story()
    story.join("w1")
    story.submit("a")
    story.join("w2")
    story.worker_of["a"] = "w2"
    with pytest.raises(InvariantError, match=r"w2 reports on a(.|\n)*running \(test\)"):
        story.finish("a")
