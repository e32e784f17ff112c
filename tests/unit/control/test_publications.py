"""Who may still read what a worker publishes."""

from __future__ import annotations

import pytest

from comfyserverless.control.publications import PublicationTable
from comfyserverless.core.ids import InvocationId, TensorId, WorkerId
from comfyserverless.core.messages import InvocationPublished
from comfyserverless.core.values import Output, PublishedRef

W0 = WorkerId("w0.0")
CONTROL, STEP = InvocationId("control"), InvocationId("step")


def opened(key: str = "p1") -> PublicationTable:
    table = PublicationTable()
    open_again(table, key)
    return table


def open_again(table: PublicationTable, key: str) -> None:
    table.open(W0, InvocationPublished(CONTROL, "residuals", TensorId(key), key.encode()))


def test_an_output_that_is_being_made_has_a_reference_as_a_whole_only() -> None:
    table = opened()
    assert table.find(Output(CONTROL, "residuals")) == PublishedRef(b"p1")
    for other in (Output(CONTROL, "other"), Output(CONTROL, "residuals", ("0",)), Output(STEP, "residuals")):
        with pytest.raises(KeyError):
            table.find(other)


def test_a_publication_is_freed_when_producer_and_readers_have_left_in_any_order() -> None:
    for first, second in ((CONTROL, STEP), (STEP, CONTROL)):
        table = opened()
        table.read(STEP, (CONTROL, InvocationId("unknown")))
        assert table.is_reading(STEP)
        assert table.leave(first) == {}
        assert table.leave(second) == {W0: ["p1"]}
        assert len(table) == 0


def test_a_reader_of_the_first_try_does_not_hold_that_of_the_second() -> None:
    table = opened("p1")
    table.read(STEP, (CONTROL,))
    assert table.leave(CONTROL) == {}
    open_again(table, "p2")
    assert table.find(Output(CONTROL, "residuals")) == PublishedRef(b"p2")
    assert table.leave(CONTROL) == {W0: ["p2"]}
    assert table.leave(STEP) == {W0: ["p1"]}
