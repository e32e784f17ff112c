"""Files of checkpoints: within the budget, and none left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyserverless.control.workers.checkpoints import CheckpointFiles, Recovery
from comfyserverless.core.ids import InvocationId, WorkerId
from comfyserverless.core.messages import InvocationDone, Timing
from comfyserverless.scheduling.instructions import StartInvocation

A, B, C = InvocationId("a"), InvocationId("b"), InvocationId("c")


def start(name: InvocationId, *, saves: bool = False, restores: bool = False) -> StartInvocation:
    return StartInvocation(name, WorkerId("w"), "gpu", "test", saves, restores)


def test_a_checkpoint_has_a_file_until_it_is_dropped(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path, 1 << 20)
    order = files.order(A)
    assert order is not None
    assert Path(order.path).stat().st_mode & 0o777 == 0o600
    assert files.written(A, 100)
    assert (files.path(A), files.used_bytes, len(files)) == (order.path, 100, 1)
    files.drop(A)
    files.drop(A)
    assert not list(tmp_path.iterdir())
    assert files.used_bytes == 0


def test_an_order_of_which_nothing_came_leaves_no_file(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path, 1 << 20)
    files.order(A)
    assert not files.written(A, 0)
    assert not list(tmp_path.iterdir())
    assert not files.written(A, 100), "it was not ordered any more"


def test_orders_and_checkpoints_together_stay_within_the_budget(tmp_path: Path) -> None:
    budget_bytes = 100_000
    files = CheckpointFiles(tmp_path, budget_bytes)
    limits_bytes = []
    for number in range(40):
        order = files.order(InvocationId(str(number)))
        if order is None:
            break
        limits_bytes.append(order.limit_bytes)
        if number % 2:
            files.written(InvocationId(str(number)), order.limit_bytes)
    assert order is None
    assert budget_bytes * 0.9 < sum(limits_bytes) <= budget_bytes
    files.drop(InvocationId("1"))
    assert files.order(C) is not None


def test_no_folder_means_no_checkpoint(tmp_path: Path) -> None:
    assert CheckpointFiles(tmp_path / "gone", 1 << 20).order(A) is None


@pytest.mark.parametrize("is_step", [True, False])
def test_steps_that_start_again_are_counted(tmp_path: Path, is_step: bool) -> None:
    recovery = Recovery(CheckpointFiles(tmp_path, 1 << 20))
    for name in (A, B, A, A):
        assert recovery.prepare(start(name), is_step) == (None, "")
        recovery.left(name)
    assert recovery.view(3).steps_rerun == (2 if is_step else 0)
    recovery.forget(A)
    recovery.prepare(start(A), is_step)
    assert recovery.view(3).steps_rerun == (2 if is_step else 0)


def test_a_walk_is_sent_to_read_the_checkpoint_that_was_written(tmp_path: Path) -> None:
    recovery = Recovery(CheckpointFiles(tmp_path, 1 << 20))
    order, source = recovery.prepare(start(A, saves=True), True)
    assert order is not None
    assert source == ""
    done = InvocationDone(A, b"", Timing(), checkpoint_bytes=50, checkpoint_s=0.5)
    assert recovery.saved_s(done) == 0.5
    recovery.left(A)
    assert recovery.prepare(start(A, restores=True), True) == (None, order.path)
    view = recovery.view(4)
    assert (view.restored, view.steps_rerun) == (1, 0)
    assert (view.checkpoints, view.checkpoint_bytes, view.checkpoint_steps) == (1, 50, 4)
    recovery.forget(A)
    assert not list(tmp_path.iterdir())


def test_the_worker_that_dies_while_it_writes_leaves_no_file(tmp_path: Path) -> None:
    recovery = Recovery(CheckpointFiles(tmp_path, 1 << 20))
    recovery.prepare(start(A, saves=True), True)
    recovery.left(A)
    assert not list(tmp_path.iterdir())
