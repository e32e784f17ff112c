"""The log tells of every run when it starts and what became of it."""

from __future__ import annotations

import logging

import pytest

from comfyserverless.control.views import (
    NodeProgress,
    Notice,
    QueueChanged,
    RunEnded,
    RunFailed,
    RunInterrupted,
    RunStarted,
    RunSucceeded,
)
from comfyserverless.core.ids import DEFAULT_TENANT, NodeId, PromptId
from comfyserverless.server.journal import Journal

RUN = (PromptId("p1"), DEFAULT_TENANT, None)
NODE = NodeId("3")
FAILED = RunFailed(*RUN, NODE, "KSampler", (), "no such file\n", "ValueError", (), {}, (), 1500)


def lines(caplog: pytest.LogCaptureFixture, *notices: Notice) -> list[tuple[str, str]]:
    journal = Journal()
    with caplog.at_level(logging.INFO):
        for notice in notices:
            journal.on_notice(notice)
    return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.mark.parametrize(
    ("end", "level", "told"),
    [
        (RunSucceeded(*RUN, 3310), "INFO", "Prompt p1 is done, 2.31 s"),
        (
            RunInterrupted(*RUN, NODE, "KSampler", (), 3),
            "INFO",
            "Prompt p1 was interrupted in node 3 (KSampler)",
        ),
        (FAILED, "ERROR", "Prompt p1 failed in node 3 (KSampler): no such file"),
    ],
)
def test_run_is_told_of_twice(end: Notice, level: str, told: str, caplog: pytest.LogCaptureFixture) -> None:
    told_lines = lines(caplog, RunStarted(*RUN, 1000), NodeProgress(*RUN, NODE, 1, 2), end, RunEnded(*RUN))
    assert told_lines == [("INFO", "Prompt p1 starts"), (level, told)]


def test_runs_side_by_side_keep_their_own_times(caplog: pytest.LogCaptureFixture) -> None:
    other = (PromptId("p2"), DEFAULT_TENANT, None)
    told_lines = lines(
        caplog,
        RunStarted(*RUN, 0),
        RunStarted(*other, 1000),
        RunSucceeded(*RUN, 2000),
        RunSucceeded(*other, 2000),
    )
    assert [text for _, text in told_lines[2:]] == ["Prompt p1 is done, 2.00 s", "Prompt p2 is done, 1.00 s"]


def test_queue_length_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    assert lines(caplog, QueueChanged(DEFAULT_TENANT, 3)) == []
