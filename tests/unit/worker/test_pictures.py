"""Pictures that are made beside the lanes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from comfyserverless.core.ids import InvocationId
from comfyserverless.core.messages import InvocationShown
from comfyserverless.sdk.modelfn import Later
from comfyserverless.worker.pictures import MOST_BEHIND, Pictures

FIRST, SECOND, OTHER = (InvocationId(name) for name in ("p#1/3/1", "p#1/3/2", "p#1/5/1"))
WITHIN_S = 30.0


class Site:
    """The thread, what it has sent, and a picture that is not finished before `gate` is open."""

    def __init__(self) -> None:
        self.sent: SimpleQueue[InvocationShown] = SimpleQueue()
        self.pictures = Pictures(self.sent.put)
        self.gate, self.has_begun = threading.Event(), threading.Event()

    def slow(self) -> bytes:
        self.has_begun.set()
        assert self.gate.wait(WITHIN_S)
        return b"slow"

    def show(self, invocation: InvocationId, image: bytes) -> None:
        self.pictures.prepare(invocation, Later(lambda: image))
        self.pictures.start(invocation)

    def next(self) -> tuple[InvocationId, bytes]:
        message = self.sent.get(timeout=WITHIN_S)
        return message.invocation, message.image


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.gate.set()
    site.pictures.stop()


def test_pictures_come_in_the_order_of_results(site: Site) -> None:
    for invocation in (FIRST, OTHER, SECOND):
        site.show(invocation, invocation.encode())
    assert [site.next() for _ in range(3)] == [(each, each.encode()) for each in (FIRST, OTHER, SECOND)]


def test_nothing_is_made_before_the_result_was_answered(site: Site) -> None:
    site.pictures.prepare(FIRST, Later(lambda: b"early"))
    site.show(SECOND, b"second")
    assert site.next() == (SECOND, b"second")
    assert site.sent.empty()
    site.pictures.start(FIRST)
    assert site.next() == (FIRST, b"early")


def test_result_without_a_picture_is_none_of_its_business(site: Site) -> None:
    site.pictures.start(OTHER)
    site.show(FIRST, b"first")
    assert site.next() == (FIRST, b"first")


def test_picture_is_left_out_if_more_newer_ones_of_its_node_wait_than_may(site: Site) -> None:
    blocking = InvocationId("p#1/9/1")
    site.pictures.prepare(blocking, Later(site.slow))
    site.pictures.start(blocking)
    assert site.has_begun.wait(WITHIN_S)
    steps = [InvocationId(f"p#1/3/{number}") for number in range(MOST_BEHIND + 2)]
    for invocation in (*steps, OTHER):
        site.show(invocation, b"made")
    site.gate.set()
    seen = [site.next() for _ in range(len(steps) + 2)]
    assert seen[:2] == [(blocking, b"slow"), (steps[0], b"")]
    assert seen[2:] == [(each, b"made") for each in (*steps[1:], OTHER)]


def test_picture_that_fails_is_empty_and_the_next_one_is_made(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> bytes:
        raise ValueError("no picture")

    site.pictures.prepare(FIRST, Later(fail))
    site.pictures.start(FIRST)
    site.show(SECOND, b"second")
    assert [site.next(), site.next()] == [(FIRST, b""), (SECOND, b"second")]
    assert "a preview could not be made" in caplog.text


def test_stop_waits_for_the_picture_that_is_being_made_and_ends_the_thread() -> None:
    site = Site()
    site.pictures.prepare(FIRST, Later(site.slow))
    site.pictures.start(FIRST)
    assert site.has_begun.wait(WITHIN_S)
    site.show(SECOND, b"second")
    site.gate.set()
    site.pictures.stop()
    assert site.next() == (FIRST, b"slow")
    assert not site.pictures._thread.is_alive()
