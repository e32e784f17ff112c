"""Stories about checkpoints: when one is written, what it saves, when it goes."""

from __future__ import annotations

import pytest

from tests.support.scheduling import (
    Story,
    abandon,
    cancel,
    drop,
    drop_checkpoint,
    restore,
    save,
    start,
)


def walk(steps: int = 2, count: int = 6) -> Story:
    """Submit a walk of so many steps and have the first of them run."""
    story = Story(checkpoint_steps=steps)
    story.join("w1")
    story.chain(*[f"s{step}" for step in range(count)], is_step=True)
    return story


def test_every_second_step_is_written_down_and_the_checkpoint_before_goes() -> None:
    story = walk()
    assert story.finish("s0") == [save("s1", "w1")]
    assert story.finish("s1", checkpoint_s=0.01) == [drop("s0"), start("s2", "w1")]
    assert story.finish("s2") == [drop("s1"), save("s3", "w1")]
    assert story.finish("s3", checkpoint_s=0.01) == [drop_checkpoint("s1"), drop("s2"), start("s4", "w1")]


def test_a_walk_goes_on_from_its_checkpoint_when_its_worker_is_lost() -> None:
    story = walk(3)
    story.finish("s0")
    story.finish("s1")
    story.finish("s2", checkpoint_s=0.01)
    story.finish("s3")
    assert story.finish("s4") == [drop("s3"), save("s5", "w1")]
    assert story.lose("w1") == [drop("s4")]
    assert story.join("w2") == [restore("s2", "w2")]
    assert story.finish("s2") == [start("s3", "w2")]
    assert story.finish("s3") == [drop("s2"), start("s4", "w2")]
    assert story.finish("s4") == [drop("s3"), save("s5", "w2")]


def test_reading_a_checkpoint_makes_nothing_that_its_step_was_made_of() -> None:
    story = Story(checkpoint_steps=1)
    story.join("w1")
    story.submit("text", node="0")
    story.submit("s0", needs=("text",), is_step=True)
    story.submit("end", needs=("s0",))
    story.unpin("text", "s0")
    story.finish("text")
    story.finish("s0", checkpoint_s=0.01)
    assert story.lose("w1") == [drop("s0")]
    assert story.join("w2") == [restore("s0", "w2")]
    assert story.finish("s0") == [start("end", "w2")]


def test_a_step_whose_checkpoint_was_not_written_leaves_it_to_the_next() -> None:
    story = walk()
    story.finish("s0")
    assert story.finish("s1", checkpoint_s=None) == [drop("s0"), save("s2", "w1")]


def test_a_checkpoint_that_cannot_be_read_is_dropped_and_the_walk_starts_again() -> None:
    story = walk()
    story.finish("s0")
    story.finish("s1", checkpoint_s=0.01)
    story.lose("w1")
    assert story.join("w2") == [restore("s1", "w2")]
    assert story.fail("s1") == [drop_checkpoint("s1"), start("s0", "w2")]
    assert story.finish("s0") == [save("s1", "w2")]


def test_checkpoints_go_with_their_run() -> None:
    story = walk(1, 2)
    story.finish("s0", checkpoint_s=0.01)
    assert story.close() == [cancel("s1", "w1"), drop_checkpoint("s0")]
    assert drop("s0") in story.cancelled("s1")


def test_a_step_that_ends_after_its_run_keeps_no_checkpoint() -> None:
    story = walk(1, 1)
    story.close()
    assert drop_checkpoint("s0") not in story.unpin("s0")
    story = walk(1, 1)
    story.close()
    assert story.finish("s0", checkpoint_s=0.01) == [drop_checkpoint("s0")]


def test_a_cached_result_of_a_closed_run_is_rebuilt_without_checkpoints() -> None:
    story = walk(1, 2)
    story.finish("s0", checkpoint_s=0.01)
    story.finish("s1", checkpoint_s=0.01)
    assert story.close() == [drop_checkpoint("s1")]
    assert story.lose("w1") == [drop("s1")]
    assert story.join("w2") == [start("s0", "w2")]
    assert story.finish("s0") == [start("s1", "w2")]


def test_a_checkpoint_that_is_read_when_its_run_is_closed_goes_after_that() -> None:
    story = walk(1, 1)
    story.submit("late", run="other", needs=("s0",))
    story.finish("s0", checkpoint_s=0.01)
    story.lose("w1")
    story.join("w2")
    assert story.close() == []
    assert story.finish("s0") == [drop_checkpoint("s0"), start("late", "w2")]


def test_a_checkpoint_that_nobody_reads_after_all_goes_when_its_run_is_closed() -> None:
    story = Story(checkpoint_steps=1)
    story.join("w1")
    story.chain("s0", "s1", is_step=True, pinned=True)
    story.finish("s0", checkpoint_s=0.01)
    story.join("w2")
    story.submit("busy", run="other")
    assert story.finish("s1", holders=("w2",)) == []
    assert story.lose("w1") == [drop("s0")]
    assert story.close() == []
    assert story.unpin("s0") == [drop_checkpoint("s0")]


def test_a_call_between_steps_does_not_count_and_is_not_saved() -> None:
    story = Story(checkpoint_steps=2)
    story.join("w1")
    story.submit("begin")
    story.submit("half", needs=("begin",))
    story.submit("s0", needs=("half",), is_step=True)
    story.submit("s1", needs=("s0",), is_step=True)
    assert story.finish("begin") == [start("half", "w1")]
    assert story.finish("half") == [start("s0", "w1")]
    assert story.finish("s0") == [save("s1", "w1")]


def test_a_second_walk_counts_the_steps_that_the_first_has_left_at_risk() -> None:
    story = Story(checkpoint_steps=3)
    story.join("w1")
    for before, name in (("", "a0"), ("a0", "a1"), ("a1", "b0")):
        story.submit(name, needs=(before,) if before else (), node=name[0], is_step=True)
    story.finish("a0")
    assert story.finish("a1") == [save("b0", "w1")]


def test_no_checkpoints_are_written_when_they_are_off() -> None:
    story = walk(0)
    assert story.finish("s0") == [start("s1", "w1")]
    assert story.finish("s1") == [drop("s0"), start("s2", "w1")]


@pytest.mark.parametrize(("checkpoint_s", "steps"), [(0.001, 1), (0.025, 3), (5.0, 32)])
def test_checkpoints_take_a_hundredth_of_the_time_of_a_walk(checkpoint_s: float, steps: int) -> None:
    story = Story(checkpoint_steps=None)
    story.join("w1")
    names = [f"s{step}" for step in range(40)]
    story.chain(*names, is_step=True)
    written = [0]
    for step in range(39):
        cost_s = checkpoint_s if step in written else None
        out = story.finish(f"s{step}", compute_s=1.0 + (cost_s or 0.0), checkpoint_s=cost_s)
        written += [step + 1] if save(f"s{step + 1}", "w1") in out else []
    assert written == list(range(0, 40, steps))
    assert story.state.checkpoints.largest_steps == steps


def test_a_step_that_kills_its_worker_twice_is_given_up_for_all_its_checkpoints() -> None:
    story = walk(1, 2)
    story.finish("s0", checkpoint_s=0.01)
    story.lose("w1")
    assert story.join("w2") == [restore("s0", "w2")]
    assert story.finish("s0") == [save("s1", "w2")]
    assert story.lose("w2") == [drop("s0"), abandon("s1", 2)]
