"""Which worker an invocation goes to."""

from __future__ import annotations

import pytest

from comfyserverless.core.errors import InvariantError
from tests.support.scheduling import Story, start


def test_weights_draw_an_invocation_to_the_worker_that_used_them() -> None:
    story = Story()
    story.join("w1")
    story.join("w2")
    story.submit("a", weights=("unet",))
    story.submit("b", weights=("vae",))
    story.finish("a", holders=())
    story.finish("b", holders=())
    assert story.submit("c", weights=("vae",)) == [start("c", "w2")]
    story.finish("c", holders=())
    assert story.submit("d", weights=("unet",)) == [start("d", "w1")]


def test_inputs_draw_an_invocation_to_their_holder() -> None:
    story = Story()
    story.join("w1")
    story.join("w2")
    story.submit("a")
    story.submit("b", needs=("a",))
    assert story.finish("a", holders=("w2",)) == [start("b", "w2")]


def test_weights_outweigh_an_input_that_has_to_be_pulled() -> None:
    story = Story()
    story.join("w1")
    story.join("w2")
    story.submit("a", weights=("unet",))
    story.submit("b", needs=("a",), weights=("unet",))
    assert story.finish("a", holders=("w2",), load_s=0.5) == [start("b", "w1")]


def test_the_less_loaded_worker_is_next_best_and_then_the_one_that_joined_first() -> None:
    story = Story()
    story.join("w1", gpu=2)
    story.join("w2", gpu=2)
    assert [story.submit(name) for name in "abc"] == [
        [start("a", "w1")],
        [start("b", "w2")],
        [start("c", "w1")],
    ]


def test_a_worker_without_the_lane_gets_none_of_its_work() -> None:
    story = Story()
    story.join("w1", gpu=1, cpu=0)
    assert story.submit("a", lane="cpu") == []
    assert story.join("w2", gpu=0, cpu=1) == [start("a", "w2", "cpu")]
    assert story.submit("b") == [start("b", "w1")]


def test_a_busy_worker_with_the_weights_does_not_keep_an_idle_one_waiting() -> None:
    story = Story()
    story.join("w1")
    story.join("w2")
    story.submit("a", weights=("unet",))
    assert story.submit("b", weights=("unet",)) == [start("b", "w2")]


def test_missing_weights_are_part_of_the_charge() -> None:
    story = Story(default_cost_s=1.0, default_load_s=4.0)
    story.join()
    story.submit("a", weights=("unet",))
    assert story.v_time_s("A") == 5.0
    story.finish("a", 1.0)
    story.submit("b", weights=("unet",))
    assert story.v_time_s("A") == 2.0


def test_a_worker_id_joins_once() -> None:
    story = Story()
    story.join("w1")
    with pytest.raises(InvariantError, match="joined twice"):
        story.join("w1")
