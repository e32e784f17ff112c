"""A run is followed to its end, whatever happens to the connection."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from comfyserverless.client import running
from comfyserverless.client.connection import Connection, ConnectionFailed, Message
from comfyserverless.client.progress import ProgressLine
from comfyserverless.client.running import Ended, RunFailed, Runner, problem_lines

PROMPT = {
    "3": {"class_type": "KSampler", "inputs": {}, "_meta": {"title": "Draw"}},
    "9": {"class_type": "SaveImage", "inputs": {}},
}
IMAGE = {"filename": "a.png", "subfolder": "", "type": "output"}
DONE = {"status": {"messages": []}, "outputs": {"9": {"images": [IMAGE], "animated": [False]}}}


class FakeConnection(Connection):
    """Answers as a server would: messages of the websocket, then history answers in turn."""

    def __init__(self, messages: list[Message], history: list[Any], answer: Any = None) -> None:
        self.client_id = "c"
        self.posted: list[tuple[str, Any]] = []
        self._messages = messages
        self._history = history
        self._answer = answer or {"prompt_id": "p", "node_errors": {}}

    async def post(self, path: str, body: Any) -> Any:
        self.posted.append((path, body))
        return self._answer

    async def get(self, path: str) -> Any:
        assert path == "/history/p"
        answer = self._history.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @asynccontextmanager
    async def socket(self) -> AsyncIterator[AsyncIterator[Message]]:
        async def messages() -> AsyncIterator[Message]:
            for message in self._messages:
                yield message

        yield messages()


def message(kind: str, **data: Any) -> Message:
    """Build a message of the prompt."""
    return Message(kind, {"prompt_id": "p", **data})


async def run(connection: FakeConnection, workflow: Any = None) -> Ended:
    """Run the prompt without showing anything."""
    with ProgressLine(len(PROMPT), io.StringIO()) as progress:
        return await Runner(connection, PROMPT, workflow).run(progress)


async def test_finished_run_gives_its_files() -> None:
    messages = [message("executing", node="3"), message("progress", node="3", value=1, max=2)]
    connection = FakeConnection([*messages, message("executing", node=None)], [{"p": DONE}])
    assert (await run(connection, {"nodes": []})).files == (IMAGE,)
    (path, body) = connection.posted[0]
    assert path == "/prompt"
    assert body["extra_data"] == {"extra_pnginfo": {"workflow": {"nodes": []}}}


async def test_end_of_another_prompt_is_not_ours() -> None:
    other = Message("executing", {"prompt_id": "q", "node": None})
    connection = FakeConnection([other, message("executing", node=None)], [{"p": DONE}])
    assert (await run(connection)).files == (IMAGE,)


async def test_lost_websocket_and_a_restart_are_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_POLL_S", 0.0)
    history = [{}, ConnectionFailed("away"), ConnectionFailed("away"), {}, {"p": DONE}]
    assert (await run(FakeConnection([], history))).files == (IMAGE,)


async def test_server_that_stays_away_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_POLL_S", 0.0)
    monkeypatch.setattr(running, "_PATIENCE_S", -1.0)
    with pytest.raises(ConnectionFailed, match="away"):
        await run(FakeConnection([], [ConnectionFailed("away")]))


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (
            ["execution_error", {"node_id": "3", "exception_type": "ValueError", "exception_message": "no\n"}],
            r"node 3 \(KSampler 'Draw'\): ValueError: no$",
        ),
        (["execution_error", {"node_id": "77", "node_type": "Inner"}], r"node 77 \(Inner\): error: $"),
        (["execution_interrupted", {}], "the run was interrupted"),
    ],
)
async def test_failed_run_names_node_and_reason(event: list[Any], reason: str) -> None:
    history = [{"p": {"status": {"messages": [event]}, "outputs": {}}}]
    with pytest.raises(RunFailed, match=reason):
        await run(FakeConnection([message("executing", node=None)], history))


async def test_texts_and_outputs_that_cannot_run_are_told() -> None:
    error = {"message": "The value is no INT", "details": "steps"}
    answer = {"prompt_id": "p", "node_errors": {"3": {"errors": [error], "class_type": "KSampler"}}}
    entry = {"status": None, "outputs": {"3": {"text": ["hello"], "images": "odd"}}}
    ended = await run(FakeConnection([message("executing", node=None)], [{"p": entry}], answer))
    assert ended.texts == (("Draw", "hello"),)
    assert ended.warnings == ("node 3 (KSampler 'Draw'): The value is no INT: steps",)


def test_problems_of_an_odd_answer_are_none() -> None:
    assert problem_lines(None, PROMPT) == problem_lines({"node_errors": []}, PROMPT) == []


def test_progress_shows_node_and_steps_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    with ProgressLine(2, out) as progress:
        progress.skip(1)
        progress.begin("Draw")
        progress.step("Draw", 7, 20)
    assert "Draw" in out.getvalue()
    assert "7/20" in out.getvalue()
    silent = Terminal()
    with ProgressLine(2, silent, is_silent=True) as progress:
        progress.begin("Draw")
    assert silent.getvalue() == ""
