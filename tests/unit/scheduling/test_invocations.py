"""The table of transitions."""

from __future__ import annotations

from typing import get_args

import pytest

from comfyserverless.core.errors import InvariantError
from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.scheduling.invocations import TRANSITIONS, InvocationRecord, Phase, RunRecord, Turn
from tests.support.scheduling import spec


def _record(phase: Phase) -> InvocationRecord:
    run = RunRecord(PromptId("r"), TenantId("A"), 0.0)
    return InvocationRecord(spec("x"), 1, run, (), (), 1.0, 0.0, phase=phase)


@pytest.mark.parametrize("source", get_args(Phase))
@pytest.mark.parametrize("target", get_args(Phase))
def test_a_pair_that_the_table_does_not_name_raises(source: Phase, target: Phase) -> None:
    record = _record(source)
    if (source, target) in TRANSITIONS:
        record.enter(target, Turn(1.0, "why"))
        assert record.phase == target
    else:
        with pytest.raises(InvariantError, match=f"x cannot go from {source} to {target}"):
            record.enter(target, Turn(1.0, "why"))


def test_an_error_tells_the_story_of_its_invocation() -> None:
    record = _record("submitted")
    record.enter("waiting", Turn(1.0, "e1"))
    record.enter("ready", Turn(2.5, "e2"))
    with pytest.raises(InvariantError) as caught:
        record.enter("done", Turn(3.0, "e3"))
    assert caught.value.story == ("1.000000 s: waiting (e1)", "2.500000 s: ready (e2)")


def test_a_forgotten_invocation_never_comes_back() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] == "forgotten"]
