"""Calls survive the server, and a file that is not ours is moved out of the way."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from comfyserverless.control.webhooks.outbox import Call, Outbox
from comfyserverless.control.webhooks.target import Target
from comfyserverless.core.errors import CapacityError
from comfyserverless.core.ids import PromptId, TenantId


def call(name: str) -> Call:
    return Call(name, TenantId("t"), PromptId(f"p{name}"), Target("http://x/", "secret-text"))


async def test_calls_survive_and_are_forgotten_when_made(tmp_path: Path) -> None:
    path = tmp_path / "hooks" / "outbox.sqlite3"
    first = Outbox(path)
    assert await first.load() == []
    assert not path.exists()
    for name in "abc":
        await first.add(call(name))
    due = call("b").due(5)
    await first.set_body(due, b"body")
    await first.postpone(due.due(9, 2))
    await first.remove(call("c"))
    first.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    second = Outbox(path)
    assert await second.load() == [call("a"), call("b").due(9, 2)]
    assert await second.body(call("b")) == b"body"
    assert await second.body(call("c")) is None
    second.close()


async def test_calls_in_memory_leave_nothing_behind(tmp_path: Path) -> None:
    outbox = Outbox(None)
    await outbox.add(call("a"))
    await outbox.set_body(call("a").due(1), b"x")
    assert await outbox.body(call("a")) == b"x"
    outbox.close()


async def test_file_that_is_no_database_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "outbox.sqlite3"
    path.write_bytes(b"nonsense" * 100)
    outbox = Outbox(path)
    assert await outbox.load() == []
    await outbox.add(call("a"))
    outbox.close()
    assert [name for name in os.listdir(tmp_path) if name.startswith("outbox.sqlite3.damaged-")]


async def test_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outbox = Outbox(tmp_path / "file" / "outbox.sqlite3")
    with pytest.raises(CapacityError, match="cannot be kept"):
        await outbox.add(call("a"))
    outbox.close()
