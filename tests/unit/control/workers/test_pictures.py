"""Reports that wait for their pictures."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from comfyserverless.control.workers import pictures
from comfyserverless.control.workers.pictures import PictureDesk
from comfyserverless.core.errors import WorkerError
from comfyserverless.core.ids import InvocationId, WorkerId
from comfyserverless.core.messages import InvocationDone, Timing

W0, W1 = WorkerId("w0.1"), WorkerId("w1.1")


class Story:
    """A desk, and what its observers were told: (name, preview)."""

    def __init__(self) -> None:
        self.desk = PictureDesk()
        self.told: list[tuple[str, Any]] = []
        self.was_told = asyncio.Event()

    def done(self, name: str, worker: WorkerId = W0, *, shows: bool = True, watched: bool = True) -> Any:
        def observe(outputs: Mapping[str, Any], error: WorkerError | None) -> None:
            assert outputs["state"] == name
            self.told.append((name, outputs["preview"]))
            self.was_told.set()

        message = InvocationDone(InvocationId(name), b"", Timing(), shows=shows)
        observer = self.desk.hold(worker, message, observe if watched else None)
        if observer is not None:
            observer({"state": name, "preview": None}, None)
        return observer

    def shown(self, name: str, image: bytes = b"jpeg") -> None:
        self.desk.arrived(InvocationId(name), image)


async def test_report_waits_for_its_picture_and_carries_it() -> None:
    story = Story()
    story.done("p#1/3/1")
    assert story.told == []
    story.shown("p#1/3/1")
    assert story.told == [("p#1/3/1", b"jpeg")]
    story.shown("p#1/3/1")
    assert len(story.told) == 1


async def test_result_that_shows_nothing_is_told_at_once() -> None:
    story = Story()
    story.done("p#1/3/1", shows=False)
    assert story.told == [("p#1/3/1", None)]


async def test_picture_that_could_not_be_made_lets_the_report_go() -> None:
    story = Story()
    story.done("p#1/3/1")
    story.shown("p#1/3/1", b"")
    assert story.told == [("p#1/3/1", None)]


async def test_picture_may_come_before_the_observer_is_called() -> None:
    desk, told = PictureDesk(), []
    message = InvocationDone(InvocationId("p#1/3/1"), b"", Timing(), shows=True)
    observer = desk.hold(W0, message, lambda outputs, error: told.append((dict(outputs), error)))
    assert observer is not None
    desk.arrived(message.invocation, b"png")
    assert told == []
    observer({"state": 1}, None)
    assert told == [({"state": 1, "preview": b"png"}, None)]


async def test_step_that_another_worker_finished_earlier_is_told_before_without_its_picture() -> None:
    story = Story()
    story.done("p#1/3/1", W0)
    story.done("p#1/5/1", W0)
    story.done("p#1/3/2", W1)
    story.shown("p#1/3/2")
    assert story.told == [("p#1/3/1", None), ("p#1/3/2", b"jpeg")]
    story.shown("p#1/3/1")
    story.shown("p#1/5/1")
    assert story.told[2:] == [("p#1/5/1", b"jpeg")]


async def test_loss_of_a_worker_lets_its_reports_go_and_no_others() -> None:
    story = Story()
    story.done("p#1/3/1", W0)
    story.done("p#1/5/1", W1)
    story.desk.worker_lost(W0)
    assert story.told == [("p#1/3/1", None)]
    assert len(story.desk) == 1


async def test_report_does_not_wait_for_a_picture_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "WAITS_S", 0.0)
    story = Story()
    story.done("p#1/3/1")
    assert story.told == []
    await story.was_told.wait()
    assert story.told == [("p#1/3/1", None)]
    assert len(story.desk) == 0


async def test_result_that_nobody_is_told_of_holds_nothing() -> None:
    story = Story()
    assert story.done("p#1/3/1", watched=False) is None
    assert len(story.desk) == 0
    story.shown("p#1/3/1")
