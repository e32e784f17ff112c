"""The state as a whole: bounded memory, bounded work per event, errors for impossible events."""

from __future__ import annotations

import pytest

from comfyserverless.core.errors import InvariantError
from comfyserverless.scheduling.invocations import InvocationRecord
from comfyserverless.scheduling.policies import vtime
from tests.support.scheduling import Story


def test_nothing_is_left_of_many_runs_that_are_over() -> None:
    story = Story()
    story.join()
    for index in range(50):
        names = [f"{index}.{step}" for step in range(5)]
        story.chain(*names, run=f"run{index}")
        for name in names:
            story.finish(name)
        story.close(f"run{index}")
        story.unpin(names[-1])
    assert not story.state.table.records
    assert not story.state.table.runs
    assert not story.state.table.open_runs()


def test_a_dispatch_scores_no_more_than_its_window_however_much_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story(score_window=4)
    story.join()
    for index in range(40):
        story.submit(f"i{index}", run=f"run{index}")
    scored: list[int] = []
    best = vtime.best

    def count(records: list[InvocationRecord], at_s: float) -> InvocationRecord:
        scored.append(len(records))
        return best(records, at_s)

    monkeypatch.setattr(vtime, "best", count)
    for index in range(10):
        story.finish(f"i{index}")
    assert scored == [4] * 10


def test_a_long_chain_is_forgotten_without_recursion() -> None:
    story = Story()
    state = story.state
    story.join()
    names = [f"s{index}" for index in range(1500)]
    validate, state.validate = state.validate, lambda: None  # type: ignore[method-assign]
    story.chain(*names)
    for name in names:
        story.finish(name)
    story.lose("w")
    story.join("w2")
    for name in names:
        story.finish(name)
    story.close()
    assert len(story.unpin(names[-1])) == 1 + len(names)
    validate()


def test_an_unknown_input_raises() -> None:
    with pytest.raises(InvariantError, match="ghost is not known"):
        Story().submit("a", needs=("ghost",))


def test_submitting_twice_raises() -> None:
    story = Story()
    story.submit("a")
    with pytest.raises(InvariantError, match="submitted twice"):
        story.submit("a")


def test_a_cancellation_nobody_asked_for_raises() -> None:
    story = Story()
    story.join()
    story.submit("a")
    with pytest.raises(InvariantError, match="cannot go from running to released"):
        story.cancelled("a")


def test_losing_a_worker_that_never_joined_is_no_event() -> None:
    assert Story().lose("ghost") == []
