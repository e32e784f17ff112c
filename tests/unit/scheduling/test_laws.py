"""`validate` notices when a law is broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from comfyserverless.core.errors import InvariantError
from comfyserverless.scheduling.state import SchedulingState
from tests.support.scheduling import Story


def _busy() -> SchedulingState:
    story = Story()
    story.join()
    story.chain("a", "b", "c", pinned=True)
    story.submit("d")
    story.finish("a")
    return story.state


def _steal_result(state: SchedulingState) -> None:
    next(iter(state.pool.workers.values())).results.clear()


def _steal_slot(state: SchedulingState) -> None:
    next(iter(state.pool.workers.values())).running["gpu"].clear()


def _unblock(state: SchedulingState) -> None:
    next(record for record in state.table.records.values() if record.phase == "waiting").blocked = 0


def _miscount(state: SchedulingState) -> None:
    next(iter(state.table.records.values())).open_consumers += 1


def _unlist(state: SchedulingState) -> None:
    del state.table.records[next(iter(state.table.records))]


def _unqueue(state: SchedulingState) -> None:
    state.table.backlog.remove(state.table.backlog.records()[0])


def _drop_pins(state: SchedulingState) -> None:
    record = next(record for record in state.table.records.values() if record.phase == "done")
    record.pins = 0
    record.open_consumers = 0
    record.consumers.clear()


@pytest.mark.parametrize(
    "damage", [_steal_result, _steal_slot, _unblock, _miscount, _unlist, _unqueue, _drop_pins]
)
def test_a_broken_law_raises_with_the_recent_events(damage: Callable[[SchedulingState], None]) -> None:
    state = _busy()
    state.validate()
    damage(state)
    with pytest.raises(InvariantError) as caught:
        state.validate()
    assert any("InvocationSubmitted" in line for line in caught.value.story)
