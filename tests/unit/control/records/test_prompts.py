"""Prompts go from acceptance to history, across servers, and lists show all of them in one order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyserverless.control.records.base import RecordQuery, SortKey
from comfyserverless.control.records.changes import Accepted, Started, Stopped
from comfyserverless.control.records.prompts import Prompts
from comfyserverless.control.records.store import RecordStore
from comfyserverless.control.views import RunFailed, RunInterrupted, RunRecord, RunStatus
from comfyserverless.core.errors import CapacityError
from comfyserverless.core.ids import DEFAULT_TENANT, PromptId
from comfyserverless.graph.plan import Plan
from tests.support.records import ended, ids, open_at, waiting

PLAN = Plan({}, (), {})
ALL = frozenset(RunStatus)
A = PromptId("a")


class Server:
    """The prompts of servers that follow each other on one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.start()

    def start(self) -> None:
        backend, opening = open_at(self._path)
        self.store = RecordStore(backend)
        self.prompts = Prompts(self.store, opening)

    def crash(self) -> None:
        """End without a word and start again; what was noted by then is on disk."""
        self.prompts.close()
        self.start()

    async def accept(self, record: RunRecord) -> None:
        await self.prompts.accept(record, PLAN, lambda: None)

    async def begin(self) -> RunRecord:
        taken = self.prompts.queue.take(DEFAULT_TENANT)
        assert taken is not None
        taken[0].status = RunStatus.RUNNING
        await self.prompts.begin(taken[0])
        return taken[0]

    async def history(self) -> list[RunRecord]:
        return await self.prompts.history(DEFAULT_TENANT, 0, 99)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = Server(tmp_path / "records.sqlite3")
    yield made
    made.prompts.close()


def pending(server: Server) -> list[str]:
    return ids(server.prompts.queue.pending(DEFAULT_TENANT))


async def test_prompt_is_in_the_queue_when_it_is_on_disk_and_not_before(server: Server) -> None:
    told: list[str] = []
    accepted = server.prompts.accept(waiting("a"), PLAN, lambda: told.append("a"))
    assert (pending(server), told, server.prompts.queue.pending_count(DEFAULT_TENANT)) == ([], [], 1)
    await accepted
    assert (pending(server), told) == (["a"], ["a"])


async def test_prompt_that_cannot_be_written_is_not_accepted(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    full: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(server.store, "write", lambda change: full)
    accepted = server.prompts.accept(waiting("a"), PLAN, lambda: None)
    asyncio.get_running_loop().call_soon(full.set_exception, CapacityError("the disk is full"))
    with pytest.raises(CapacityError):
        await accepted
    assert server.prompts.queue.holder(DEFAULT_TENANT, A) is None
    assert server.prompts.queue.pending_count(DEFAULT_TENANT) == 0


async def test_crash_loses_no_prompt_keeps_the_order_and_counts_on(server: Server) -> None:
    for name in "abc":
        number = server.prompts.next_number(DEFAULT_TENANT, front=name == "c")
        await server.accept(waiting(name, number))
    assert (await server.begin()).prompt_id == "c"
    server.crash()
    assert (pending(server), server.prompts.has_restored) == (["c", "a", "b"], True)
    assert server.prompts.next_number(DEFAULT_TENANT, front=False) == 3
    record = await server.begin()
    server.prompts.end(ended(record), ())
    server.crash()
    assert pending(server) == ["a", "b"]
    assert ids(await server.history()) == ["c"]


async def test_prompt_that_ran_at_two_crashes_fails_and_tells_why(server: Server) -> None:
    await server.accept(waiting("a"))
    for _ in range(2):
        await server.begin()
        server.crash()
    assert (pending(server), server.prompts.has_restored) == ([], False)
    (record,) = await server.history()
    assert record.status is RunStatus.ERROR
    failed = record.messages[-1]
    assert isinstance(failed, RunFailed)
    assert (failed.node, failed.node_type, failed.exception_type) == ("2", "SaveImage", "ServerLostError")
    assert "2 times while this prompt was running" in failed.exception_message
    assert record.ended_ms is not None


async def test_crashes_while_a_prompt_waits_are_not_its_fault(server: Server) -> None:
    await server.accept(waiting("a"))
    for _ in range(5):
        server.crash()
        assert pending(server) == ["a"]
    await server.begin()
    server.crash()
    server.crash()
    assert pending(server) == ["a"]


async def test_start_of_a_restored_prompt_is_on_disk_before_it_runs(server: Server) -> None:
    await server.accept(waiting("a"))
    server.crash()
    written: list[type] = []
    server.store.write = lambda change: written.append(type(change)) or done()  # type: ignore[method-assign, func-returns-value]
    await server.begin()
    assert written == [Started]


def done() -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future


async def test_parked_prompts_are_never_given_up(server: Server) -> None:
    await server.accept(waiting("a"))
    for _ in range(4):
        server.prompts.park(await server.begin())
        server.crash()
    assert pending(server) == ["a"]


async def test_interrupted_prompt_stays_interrupted_over_a_crash(server: Server) -> None:
    await server.accept(waiting("a"))
    record = await server.begin()
    assert not server.prompts.is_stopped(record)
    server.prompts.stop(record)
    assert server.prompts.is_stopped(record)
    server.crash()
    (shown,) = await server.history()
    assert (shown.status, pending(server)) == (RunStatus.INTERRUPTED, [])
    assert isinstance(shown.messages[-1], RunInterrupted)


async def test_deleted_prompt_stays_deleted(server: Server) -> None:
    for name in "abc":
        await server.accept(waiting(name))
    assert server.prompts.drop_pending(DEFAULT_TENANT, [PromptId("b"), PromptId("z")]) == 1
    server.crash()
    assert pending(server) == ["a", "c"]
    assert server.prompts.drop_pending(DEFAULT_TENANT, None) == 2
    assert not server.prompts.has_restored
    server.crash()
    assert pending(server) == []


async def test_prompt_is_found_in_every_state(server: Server) -> None:
    await server.accept(waiting("a"))
    for status in (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.SUCCESS):
        found = await server.prompts.find(DEFAULT_TENANT, A)
        assert found is not None
        assert found.status is status
        if status is RunStatus.PENDING:
            record = await server.begin()
        if status is RunStatus.RUNNING:
            server.prompts.end(ended(record), ())
    assert await server.prompts.find(DEFAULT_TENANT, PromptId("z")) is None


@settings(max_examples=30, deadline=None)
@given(
    over=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=8),
    active=st.lists(st.integers(0, 9), max_size=6),
    page=st.tuples(st.integers(0, 16), st.none() | st.integers(1, 16)),
    is_descending=st.booleans(),
    sort=st.sampled_from(SortKey),
)
def test_pages_of_a_list_are_cut_from_one_order_of_all_prompts(
    over: list[tuple[int, int]],
    active: list[int],
    page: tuple[int, int | None],
    is_descending: bool,
    sort: SortKey,
) -> None:
    async def check() -> None:
        backend, opening = open_at(None)
        prompts = Prompts(RecordStore(backend), opening)
        query, everything = RecordQuery(DEFAULT_TENANT, ALL, None, sort, is_descending), []
        for nth, (created_ms, took_ms) in enumerate(over):
            record = waiting(f"e{nth}")
            record.created_ms = created_ms
            everything.append(record)
            await prompts.accept(record, PLAN, lambda: None)
            prompts.queue.take(DEFAULT_TENANT)
            prompts.end(ended(record, 2_000 + took_ms), ())
        for nth, created_ms in enumerate(active):
            record = waiting(f"a{nth}")
            record.created_ms = created_ms
            everything.append(record)
            await prompts.accept(record, PLAN, lambda: None)
        start, count = page
        whole, total = await prompts.select(query, 0, None)
        assert total == len(everything)
        assert sorted(ids(whole)) == sorted(ids(everything))
        values = [query.value(record) for record in whole]
        assert values == sorted(values, reverse=is_descending)
        found, _ = await prompts.select(query, start, count)
        assert ids(found) == ids(whole[start : None if count is None else start + count])
        await asyncio.to_thread(prompts.close)

    asyncio.run(check())


def test_changes_of_unknown_prompts_do_nothing(tmp_path: Path) -> None:
    records, _ = open_at(tmp_path / "records.sqlite3")
    records.commit([Started(DEFAULT_TENANT, A, 1), Stopped(DEFAULT_TENANT, A)], 0)
    records.commit([Accepted(waiting("b"), 1)], 0)
    records.close()
    _, opening = open_at(tmp_path / "records.sqlite3")
    assert [each.record.prompt_id for each in opening.unfinished] == ["b"]
