"""Stories about runs: failing, closing, cancelling, keeping and dropping results."""

from __future__ import annotations

import pytest

from comfyserverless.core.errors import InvariantError
from comfyserverless.core.ids import InvocationId
from tests.support.scheduling import Story, abandon, cancel, drop, forget, start


def test_a_chain_drops_each_result_when_its_last_consumer_is_done() -> None:
    story = Story()
    story.join()
    assert story.chain("a", "b", "c") == [start("a")]
    assert story.finish("a") == [start("b")]
    assert story.finish("b") == [drop("a"), start("c")]
    assert story.finish("c") == [drop("b")]
    assert story.close() == []
    assert story.unpin("c") == [drop("c"), forget("c"), forget("b"), forget("a")]


def test_pins_add_up() -> None:
    story = Story()
    story.join()
    story.submit("a")
    story.finish("a")
    story.pin("a", "a")
    assert story.unpin("a", "a") == []
    assert story.unpin("a") == [drop("a"), forget("a")]
    assert story.unpin("a") == []


def test_unpinning_more_often_than_pinning_raises() -> None:
    story = Story()
    story.submit("a")
    story.unpin("a")
    with pytest.raises(InvariantError, match="more often"):
        story.unpin("a")


def test_pinning_what_is_not_known_raises() -> None:
    with pytest.raises(InvariantError, match="not known"):
        Story().pin("a")


def test_closing_a_run_forgets_what_waits_and_cancels_what_runs() -> None:
    story = Story()
    story.join()
    story.chain("a", "b", "c")
    assert story.close() == [forget("c"), forget("b"), cancel("a")]
    assert story.submit("d", run="next") == []
    assert story.cancelled("a") == [forget("a"), start("d")]


def test_a_cancelled_call_that_finished_anyway_keeps_its_result_only_if_it_is_pinned() -> None:
    story = Story()
    story.join(gpu=2)
    story.submit("a")
    story.submit("b")
    story.unpin("a")
    assert story.close() == [cancel("b"), cancel("a")]
    assert story.finish("a") == [drop("a"), forget("a")]
    assert story.finish("b") == []
    assert story.unpin("b") == [drop("b"), forget("b")]


def test_a_cancelled_call_whose_worker_is_lost_is_over() -> None:
    story = Story()
    story.join()
    story.submit("a")
    story.close()
    assert story.lose() == [forget("a")]


def test_pinned_results_survive_the_run_and_serve_another() -> None:
    story = Story()
    story.join()
    story.chain("a", "b")
    story.finish("a")
    story.finish("b")
    assert story.close() == []
    assert story.submit("c", run="next", needs=("b",)) == [start("c")]
    assert story.unpin("b") == []
    assert story.finish("c") == [drop("b")]
    story.close("next")
    assert story.unpin("c") == [drop("c"), forget("c"), forget("b"), forget("a")]


def test_what_another_run_waits_for_goes_on_after_its_own_run_closed() -> None:
    story = Story()
    story.join()
    story.submit("a")
    story.submit("b", run="next", needs=("a",))
    assert story.close() == []
    assert story.finish("a") == [start("b")]


def test_a_failed_call_fails_what_depends_on_it_and_the_rest_of_the_run_goes_on_until_it_is_closed() -> None:
    story = Story()
    story.join()
    story.chain("a", "b", "c")
    story.submit("d")
    assert story.fail("a") == [start("d")]
    assert [story.state.has_failed(InvocationId(name)) for name in "abcd"] == [True, True, True, False]
    assert [story.phase(name) for name in "abcd"] == [
        "failed",
        "failed",
        "failed",
        "running",
    ]
    assert story.close() == [cancel("d"), forget("c"), forget("b"), forget("a")]


def test_a_call_emitted_after_its_input_failed_fails_at_once() -> None:
    story = Story()
    story.join()
    story.submit("a")
    story.fail("a")
    assert story.submit("b", needs=("a",)) == []
    assert story.phase("b") == "failed"


def test_a_failed_rebuild_is_reported_for_the_runs_that_wait_for_it() -> None:
    story = Story()
    story.join("w1")
    story.submit("a")
    story.finish("a")
    story.close()
    story.lose("w1")
    story.submit("b", run="next", needs=("a",))
    assert story.join("w2") == [start("a", "w2")]
    assert story.fail("a") == [abandon("b", 0)]
    assert story.close("next") == [forget("b"), forget("a")]


def test_submitting_to_a_closed_run_raises() -> None:
    story = Story()
    story.join()
    story.submit("a")
    story.close()
    with pytest.raises(InvariantError, match="closed run"):
        story.submit("b")


def test_a_run_that_never_submitted_anything_is_closed_without_effect() -> None:
    assert Story().close("nothing") == []


def test_waiting_for_the_callback_input_means_waiting_for_its_end_without_overlap() -> None:
    story = Story()
    story.join("w1")
    story.join("w2")
    assert story.submit("control") == [start("control", "w1")]
    assert story.submit("step", callbacks=("control",)) == []
    assert story.finish("control") == [start("step", "w1")]


def _overlap_story(gpu: int = 1) -> Story:
    story = Story(overlap_callbacks=True)
    story.join("w1", gpu=gpu)
    return story


def test_overlapping_consumer_starts_beside_its_producer_once_that_publishes() -> None:
    story = _overlap_story()
    story.join("w2")
    assert story.submit("control") == [start("control", "w1")]
    assert story.submit("step", callbacks=("control",)) == []
    assert story.publish("control") == [start("step", "w2")]
    assert story.publish("control") == []
    assert story.finish("control") == []
    assert story.unpin("control") == []
    assert story.finish("step") == [drop("control")]


def test_overlapping_consumer_waits_until_all_its_producers_publish() -> None:
    story = _overlap_story()
    story.join("w2")
    story.join("w3")
    story.submit("one")
    story.submit("two")
    story.submit("step", callbacks=("one", "two"))
    assert story.publish("two") == []
    assert story.publish("one") == [start("step", "w3")]


def test_consumer_of_a_producer_that_ended_without_publishing_starts_with_its_end() -> None:
    story = _overlap_story()
    story.join("w2")
    story.submit("control")
    story.submit("step", callbacks=("control",))
    assert story.finish("control") == [start("step", "w1")]


def test_overlapping_consumer_never_starts_before_a_producer_that_has_no_lane() -> None:
    story = _overlap_story()
    assert story.submit("first") == [start("first", "w1")]
    assert story.submit("control") == []
    assert story.submit("step", callbacks=("control",)) == []
    assert story.finish("first") == [start("control", "w1")]
    # The only lane is the producer's: on one worker the producer simply runs first.
    assert story.publish("control") == []
    assert story.finish("control") == [start("step", "w1")]


def test_consumer_in_another_lane_of_the_same_worker_overlaps_too() -> None:
    story = _overlap_story()
    story.submit("control")
    story.submit("watch", lane="cpu", callbacks=("control",))
    assert story.publish("control") == [start("watch", "w1", "cpu")]


def test_a_lost_producer_takes_its_overlapping_consumer_out_of_its_lane_and_both_run_again() -> None:
    story = _overlap_story()
    story.join("w2")
    story.submit("control")
    story.submit("step", callbacks=("control",))
    story.publish("control")
    assert story.lose("w1") == [cancel("step", "w2")]
    assert story.cancelled("step") == [start("control", "w2")]
    assert story.finish("control") == [start("step", "w2")]


def test_a_failed_producer_fails_its_overlapping_consumer() -> None:
    story = _overlap_story()
    story.join("w2")
    story.submit("control")
    story.submit("step", callbacks=("control",))
    story.publish("control")
    assert story.fail("control") == [cancel("step", "w2")]
    assert story.fail("step") == []
    assert story.close() == [forget("step"), forget("control")]


def test_a_consumer_that_saw_its_input_end_first_runs_again_when_that_is_whole() -> None:
    story = _overlap_story()
    story.join("w2")
    story.submit("control")
    story.submit("step", callbacks=("control",))
    story.publish("control")
    # The worker of the producer is lost; the consumer's word of it comes before that of the link.
    assert story.fail("step", is_starved=True) == []
    assert story.phase("step") == "waiting"
    assert story.lose("w1") == [start("control", "w2")]
    assert story.finish("control") == [start("step", "w2")]


def test_word_of_publishing_from_a_worker_that_is_lost_meanwhile_is_void() -> None:
    story = _overlap_story()
    story.join("w2")
    story.submit("control")
    story.submit("step", callbacks=("control",))
    story.lose("w1")
    story.worker_of["control"] = "w1"
    assert story.publish("control") == []
    assert story.phase("step") == "waiting"


def test_an_interrupt_takes_producer_and_waiting_consumer_out_of_their_lanes() -> None:
    story = _overlap_story()
    story.join("w2")
    story.submit("control")
    story.submit("step", callbacks=("control",))
    story.publish("control")
    assert story.close() == [cancel("step", "w2"), cancel("control", "w1")]
