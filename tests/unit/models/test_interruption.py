"""Interrupts: a run ends at its next layer, and no other run does."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from comfyserverless.models.interruption import check_interrupt, interruptible
from tests.unit.models.resident.stacks import HeldTransfer, Stack, expect, present, run

X = torch.ones(2, 16)


class Stop(BaseException):
    """What a check raises in these tests."""


def stop() -> None:
    raise Stop


def test_a_run_ends_before_its_first_layer_when_it_is_interrupted_already(tmp_path: Path) -> None:
    stack = Stack(tmp_path, room=4)
    stack.write("a", 0)
    with pytest.raises(Stop), interruptible(stop):
        run(stack.runner("a"), X)


@pytest.mark.parametrize("warm_runs", [0, 1, 6])
def test_a_run_ends_at_the_layer_where_it_is_interrupted(tmp_path: Path, warm_runs: int) -> None:
    stack = Stack(tmp_path, room=4)
    wanted = expect(stack.write("a", 0), X)
    runner = stack.runner("a")
    for _ in range(warm_runs):
        run(runner, X)
    seen: list[int] = []

    def stop_at_third() -> None:
        seen.append(len(seen))
        if len(seen) == 3:
            raise Stop

    with pytest.raises(Stop), interruptible(stop_at_third):
        run(runner, X)
    assert len(seen) == 3
    # Nothing of it is left: the next run is whole, and nothing is held.
    assert torch.equal(run(runner, X), wanted)
    stack.keeper.shrink(runner.base, 0)
    assert not present(stack, runner.base)


def test_a_run_that_waits_for_a_load_is_interrupted_before_the_load_is_over(tmp_path: Path) -> None:
    held = HeldTransfer()
    stack = Stack(tmp_path, room=4, transfer=held)
    stack.write("a", 0)
    checks: list[bool] = []

    def stop_in_the_wait() -> None:
        checks.append(held.gate.is_set())
        if len(checks) == 3:  # the first one is before the layer
            raise Stop

    try:
        with pytest.raises(Stop), interruptible(stop_in_the_wait):
            run(stack.runner("a"), X)
        assert checks == [False] * 3
    finally:
        held.gate.set()


def test_a_check_is_for_its_own_thread_and_block_only() -> None:
    raised: list[BaseException] = []

    def other() -> None:
        try:
            check_interrupt()
        except Stop as exc:
            raised.append(exc)

    with interruptible(stop):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        with pytest.raises(Stop):
            check_interrupt()
    check_interrupt()
    assert not raised
