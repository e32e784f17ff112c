"""What packs print: shown as far as a log can bear it."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path

import pytest

from comfyserverless.control.hosting.output import HostOutput, LineBudget, show


def test_budget_is_a_burst_and_then_so_many_a_second() -> None:
    budget = LineBudget(0.0)
    assert budget.take(10_000, 0.0) == 500
    assert budget.take(10, 0.0) == 0
    assert budget.take(1_000, 1.0) == 50
    assert budget.take(10_000, 1_000.0) == 500
    assert budget.dropped == 9_500 + 10 + 950 + 9_500


def test_dropped_lines_are_told_now_and_then() -> None:
    budget = LineBudget(0.0)
    assert budget.report(100.0) == 0
    budget.take(600, 100.0)
    assert budget.report(100.0) == 100
    budget.take(600, 100.5)
    assert budget.report(101.0) == 0
    assert budget.report(101.0, at_once=True) > 0


def test_lines_are_marked_and_keep_their_level(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "comfyserverless.packs"):
        rest = show(b"hello\n\n 10%\r 50%\r100%\nERROR it broke\nINFO well\nWARNING\nhalf a", LineBudget(0.0))
    assert rest == b"half a"
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("INFO", "[packs] hello"),
        ("INFO", "[packs] 100%"),
        ("ERROR", "[packs] it broke"),
        ("INFO", "[packs] well"),
        ("INFO", "[packs] WARNING"),
    ]


def test_line_without_an_end_is_not_kept_for_ever() -> None:
    budget = LineBudget(0.0)
    assert show(b"x" * 1_000, budget) == b"x" * 1_000
    assert show(b"x" * (1 << 20), budget) == b""


async def test_what_a_process_writes_to_the_socket_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = HostOutput()
    await output.start(tmp_path / "out")
    with caplog.at_level(logging.INFO, "comfyserverless.packs"):
        with socket.socket(socket.AF_UNIX) as out:
            out.connect(str(tmp_path / "out"))
            out.sendall(b"".join(b"line %d\n" % number for number in range(2_000)) + b"the end")
        async with asyncio.timeout(60):
            while "lines are not shown" not in caplog.text:  # noqa: ASYNC110 - a log tells nobody
                await asyncio.sleep(0.01)
    await output.stop()
    assert "[packs] line 0\n" in caplog.text
    assert "[packs] line 1999" not in caplog.text


async def test_process_that_keeps_its_output_open_is_no_error_at_the_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = HostOutput()
    await output.start(tmp_path / "out")
    with socket.socket(socket.AF_UNIX) as out:
        out.connect(str(tmp_path / "out"))
        while not output._readers:  # noqa: ASYNC110 - it lasts
            await asyncio.sleep(0)
        await output.stop()
        await asyncio.sleep(0)
    assert caplog.text == ""
