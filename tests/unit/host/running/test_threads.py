"""Threads that nodes start, and those of pools."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from comfyserverless.host.bridge import CallInfo, Places
from comfyserverless.host.running.current import Call, Running, current, executing
from comfyserverless.host.running.threads import let_threads_inherit


@pytest.fixture(autouse=True)
def _inheriting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(threading.Thread, "start", threading.Thread.start)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", ThreadPoolExecutor.submit)
    let_threads_inherit()
    yield
    monkeypatch.undo()


def call(node_id: str) -> Call:
    info = CallInfo(node_id=node_id)
    here = Path()
    return Call(Running(info, Places(here, here, here, here, here), lambda: False), info)


def node() -> str:
    """Return the node of the call that this thread belongs to."""
    found = current()
    return found.info.node_id if found else "none"


def in_a_thread() -> str:
    found: list[str] = []

    class Own(threading.Thread):
        def run(self) -> None:
            found.append(node())

    thread = Own()
    thread.start()
    thread.join()
    return found[0]


def test_thread_belongs_to_the_call_that_starts_it() -> None:
    assert in_a_thread() == "none"
    with executing(call("1")):
        assert in_a_thread() == "1"
    assert in_a_thread() == "none"


def test_threads_of_a_pool_belong_to_the_call_that_gives_them_work() -> None:
    with ThreadPoolExecutor(1) as pool:
        with executing(call("1")):
            assert pool.submit(node).result() == "1"
            assert list(pool.map(lambda _: node(), range(3))) == ["1"] * 3
        assert pool.submit(node).result() == "none"
        with executing(call("2")):
            assert pool.submit(node).result() == "2"


async def test_default_pool_of_a_loop_is_one_too() -> None:
    loop = asyncio.get_running_loop()
    with executing(call("1")):
        assert await loop.run_in_executor(None, node) == "1"
    assert await loop.run_in_executor(None, node) == "none"


def test_arguments_reach_the_function_by_name_too() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(dict, a=1, function=2).result() == {"a": 1, "function": 2}
