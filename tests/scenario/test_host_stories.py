"""The node host in scheduling: lanes of its own, and no second try."""

from __future__ import annotations

from comfyserverless.core.modelfn import HOST_LANES
from tests.support.scheduling import Story, abandon, drop, start

HOST = "h0"


def test_nodes_of_packs_run_in_the_host_and_nothing_else_does() -> None:
    story = Story()
    assert story.join_host(HOST) == []
    assert story.submit("model") == []
    assert story.submit("node", lane="pack") == [start("node", HOST, "pack")]
    assert story.submit("task", lane="async") == [start("task", HOST, "async")]
    assert story.join("w") == [start("model")]
    assert {"pack", "async"} == HOST_LANES


def test_what_ran_in_a_host_that_was_lost_is_given_up_at_once() -> None:
    story = Story()
    story.join_host(HOST)
    story.submit("node", lane="pack")
    story.submit("task", lane="async")
    assert story.lose(HOST) == [abandon("node", 1), abandon("task", 1)]


def test_result_that_went_down_with_the_host_is_made_again_when_it_is_wanted() -> None:
    story = Story()
    story.join_host(HOST)
    story.submit("node", lane="pack")
    story.finish("node")
    assert story.lose(HOST) == [drop("node")]
    assert story.join_host("h1") == [start("node", "h1", "pack")]
