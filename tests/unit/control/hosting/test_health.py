"""What is made of the deaths of the node host."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.control.hosting.health import FAILING_DEATHS, HostHealth


class Lives:
    """Health on a clock of the test's own. marks: what the files of packs are like."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.marks: dict[str, Any] = {}
        self.health = HostHealth(self.marks.get, lambda: self.now_s)

    def live(
        self, *, imports: str = "", leaves: str = "", is_busy: bool = False, lived_s: float = 3.0
    ) -> float:
        """Live through one host that dies while it imports a pack, or later; returns the delay that follows."""
        health = self.health
        health.joined()
        health.begun(imports or "p")
        if not imports:
            health.begun("")
            health.loaded()
        self.now_s += lived_s
        if leaves:
            health.leaving(leaves, "os._exit in /p/__init__.py, line 3")
        health.lost(is_busy=is_busy)
        return health.ended()


@pytest.fixture
def lives() -> Lives:
    return Lives()


def test_pack_whose_import_ends_the_host_gets_a_second_try(lives: Lives) -> None:
    lives.live(imports="deadly")
    assert lives.health.given_up() == {}
    lives.live(imports="deadly")
    assert lives.health.given_up() == {"deadly": "its import ended the process"}
    assert not lives.health.is_failing, "the others are loaded without it"


def test_pack_that_was_given_up_is_tried_again_when_its_files_change(lives: Lives) -> None:
    for _ in range(2):
        lives.live(imports="deadly")
    assert set(lives.health.given_up()) == {"deadly"}
    lives.marks["deadly"] = "changed"
    assert lives.health.given_up() == {}
    lives.live(imports="deadly")
    assert lives.health.given_up() == {}, "it has two tries again"


def test_pack_that_ends_the_host_while_no_node_runs_is_given_up_and_nobody_waits_long(lives: Lives) -> None:
    delays = [lives.live(leaves="leaver") for _ in range(3)]
    assert delays == [0.0, 0.0, 0.0]
    assert "line 3" in lives.health.given_up()["leaver"]
    assert not lives.health.is_failing


def test_host_that_dies_for_unknown_reasons_is_started_ever_later_and_nobody_waits_for_it(lives: Lives) -> None:
    delays = [lives.live() for _ in range(12)]
    assert delays[: FAILING_DEATHS - 1] == [0.0] * (FAILING_DEATHS - 1)
    assert delays[FAILING_DEATHS - 1 : FAILING_DEATHS + 2] == [2.0, 4.0, 8.0]
    assert delays[-1] == 60.0
    assert lives.health.is_failing
    assert lives.health.problem() == "The process of the node packs ended 12 times while no node ran"
    lives.health.joined()
    lives.health.begun("")
    lives.health.loaded()
    assert lives.health.is_failing, "it may die like the others"
    lives.now_s += 30.0
    assert not lives.health.is_failing
    lives.health.worked()
    assert lives.live() == 0.0


def test_host_that_dies_before_it_has_said_hello_counts_too(lives: Lives) -> None:
    assert [lives.health.ended() for _ in range(FAILING_DEATHS)] == [0.0] * (FAILING_DEATHS - 1) + [2.0]
    assert lives.health.is_failing


def test_node_that_ends_the_host_makes_nobody_else_wait(lives: Lives) -> None:
    assert {lives.live(is_busy=True, leaves="p") for _ in range(20)} == {0.0}
    assert (lives.health.is_failing, lives.health.given_up()) == (False, {})


def test_deaths_of_hosts_that_lived_long_are_no_row(lives: Lives) -> None:
    assert {lives.live(lived_s=25.0) for _ in range(20)} == {0.0}
    assert not lives.health.is_failing


def test_page_waits_only_while_loading_goes_on(lives: Lives) -> None:
    health = lives.health
    assert health.patience_s() == 40.0
    health.joined()
    health.begun("slow")
    lives.now_s += 14.0
    health.begun("slower")
    assert health.patience_s() == 15.0
    lives.now_s += 16.0
    assert health.patience_s() == 0.0
    assert health.problem() == "Node pack slower is being imported, for 16 s so far"
    assert not health.is_failing, "prompts with its nodes may well wait"


def test_page_does_not_wait_for_a_process_that_cannot_be_started(lives: Lives) -> None:
    lives.health.not_started()
    assert lives.health.patience_s() == 0.0
    assert lives.health.is_failing
    assert "cannot be started" in lives.health.problem()
    lives.health.joined()
    assert lives.health.problem() == ""
