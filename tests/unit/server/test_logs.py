"""The tape keeps the last lines with their time."""

from __future__ import annotations

import logging

import pytest
from aiohttp.http_exceptions import BadHttpMessage

from comfyserverless.core.ids import TenantId
from comfyserverless.server.logs import ABOUT, CAPACITY_LINES, LogTape, tell_noise_shortly


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("name", logging.INFO, "file", 1, text, None, None)


def test_tape_keeps_the_last_lines_only() -> None:
    tape = LogTape()
    for index in range(CAPACITY_LINES + 5):
        tape.emit(record(f"line {index}"))
    lines = tape.entries()
    assert len(lines) == CAPACITY_LINES
    assert lines[0]["m"] == "line 5\n"
    assert lines[-1]["m"] in tape.text()


def test_listener_gets_each_line_until_it_leaves() -> None:
    tape, heard = LogTape(), list[dict[str, str]]()
    tape.listen(lambda line, _: heard.append(line))
    tape.emit(record("one"))
    tape.listen(None)
    tape.emit(record("two"))
    assert [line["m"] for line in heard] == ["one\n"]


def test_lines_about_a_tenant_can_be_asked_for_alone() -> None:
    tape = LogTape()
    tape.emit(record("of the server"))
    about = record("of alice")
    setattr(about, ABOUT, "alice")
    tape.emit(about)
    assert [line["m"] for line in tape.entries(TenantId("alice"))] == ["of alice\n"]
    assert tape.entries(TenantId("bob")) == []
    assert "of the server" not in tape.text(TenantId("alice"))
    assert len(tape.entries()) == 2


def test_what_is_not_http_is_one_short_line_and_other_failures_keep_their_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    def told(error: Exception) -> logging.LogRecord:
        made = record("Error handling request from 10.0.0.1")
        made.levelno, made.exc_info = logging.ERROR, (type(error), error, None)
        assert tell_noise_shortly(made)
        return made

    noise = told(BadHttpMessage("GET /ws?token=secret"))
    assert (noise.levelno, noise.exc_info) == (logging.INFO, None)
    assert (
        noise.getMessage() == "Refused what is not HTTP (BadHttpMessage): Error handling request from 10.0.0.1"
    )
    fault = told(ValueError("a fault of ours"))
    assert (fault.levelno, fault.exc_info is not None) == (logging.ERROR, True)
