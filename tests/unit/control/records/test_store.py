"""Changes reach the database in order and together, readers see them, and trouble stays where it belongs."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from comfyserverless.control.records import store as store_module
from comfyserverless.control.records.base import Retention
from comfyserverless.control.records.changes import Accepted, Change, Ended, FilesNamed, NamedFile
from comfyserverless.control.records.sqlite import SqliteRecords
from comfyserverless.control.records.store import RecordStore
from comfyserverless.core.errors import CapacityError
from comfyserverless.core.ids import DEFAULT_TENANT, PromptId
from tests.support.records import NODE, ended, ids, life, open_at, waiting


class Watched(SqliteRecords):
    """A database whose commits can be held up, and fail for a while; remembers how large they were."""

    def __init__(self) -> None:
        super().__init__(None, Retention())
        self.open(0)
        self.gate = threading.Event()
        self.gate.set()
        self.sizes: list[int] = []
        self.failures = 0

    def commit(self, changes: Sequence[Change], now_ms: int) -> None:
        assert self.gate.wait(60)
        if self.failures:
            self.failures -= 1
            raise CapacityError("the disk is full")
        super().commit(changes, now_ms)
        self.sizes.append(len(changes))


@pytest.fixture
def backend() -> Watched:
    return Watched()


@pytest.fixture
async def store(backend: Watched, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RecordStore]:
    monkeypatch.setattr(store_module, "_RETRY_S", 0.01)
    made = RecordStore(backend)
    yield made
    backend.gate.set()
    made.close()


async def history(store: RecordStore) -> list[str]:
    return ids(await store.read(lambda backend: backend.history(DEFAULT_TENANT, 0, 99)))


async def test_reader_sees_what_was_noted_before(store: RecordStore) -> None:
    for change in life(waiting("a")):
        store.note(change)
    assert await history(store) == ["a"]


async def test_changes_that_arrive_during_a_commit_share_the_next_one(
    store: RecordStore, backend: Watched
) -> None:
    backend.gate.clear()
    writes = [store.write(Accepted(waiting(f"p{nth}"), nth)) for nth in range(50)]
    await asyncio.sleep(0.02)
    assert not any(write.done() for write in writes), "nobody is told before it is on disk"
    backend.gate.set()
    await asyncio.gather(*writes)
    assert len(backend.sizes) <= 3
    assert sum(backend.sizes) == 50


async def test_who_waits_hears_of_a_failure_and_the_rest_is_tried_again(
    store: RecordStore, backend: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    backend.gate.clear()
    await asyncio.sleep(0)
    backend.failures = 3
    accepted, started, end = life(waiting("a"))
    store.note(accepted)
    refused = store.write(Accepted(waiting("b"), 1))
    store.note(started)
    store.note(end)
    backend.gate.set()
    with pytest.raises(CapacityError, match="the disk is full"):
        await refused
    async with asyncio.timeout(60):
        while True:
            if await history(store) == ["a"] and len(caplog.records) > 1:
                break
            await asyncio.sleep(0.01)
    assert await store.read(lambda each: each.find(DEFAULT_TENANT, PromptId("b"))) is None
    assert [record.message for record in caplog.records] == [
        "the disk is full; trying again",
        "Records can be written again",
    ]


async def test_reader_does_not_wait_for_a_disk_that_is_full(store: RecordStore, backend: Watched) -> None:
    for change in life(waiting("a")):
        await store.write(change)
    backend.failures = 1_000_000
    store.note(Accepted(waiting("b"), 1))
    async with asyncio.timeout(30):
        for _ in range(5):
            assert await history(store) == ["a"]
    backend.failures = 0


async def test_change_that_no_database_can_hold_costs_no_other(
    store: RecordStore, backend: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    backend.gate.clear()
    broken = ended(waiting("broken"))
    broken.messages = [object()]  # type: ignore[list-item]
    store.note(Accepted(waiting("before"), 1))
    refused = store.write(Ended(broken))
    for change in life(waiting("after")):
        store.note(change)
    backend.gate.set()
    with pytest.raises(CapacityError, match="cannot be recorded"):
        await refused
    assert await history(store) == ["after"]
    assert "given up" in caplog.text


async def test_store_that_failed_says_so_for_a_while_and_until_it_writes_again(
    store: RecordStore, backend: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.can_write()
    backend.failures = 1
    with pytest.raises(CapacityError):
        await store.write(Accepted(waiting("a"), 0))
    assert not store.can_write()
    with monkeypatch.context() as later:
        later.setattr(store_module, "_PATIENCE_S", 0.0)
        assert store.can_write(), "nobody would ever find out that it works again"
    await store.write(Accepted(waiting("b"), 0))
    assert store.can_write()


async def test_store_whose_commit_does_not_end_says_so(
    store: RecordStore, backend: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_STUCK_S", 0.01)
    backend.gate.clear()
    write = store.write(Accepted(waiting("a"), 0))
    async with asyncio.timeout(60):
        while store.can_write():  # noqa: ASYNC110  (a thread is waited for)
            await asyncio.sleep(0.005)
    backend.gate.set()
    await write
    assert store.can_write()


async def test_waiter_that_is_gone_holds_up_nobody(store: RecordStore, backend: Watched) -> None:
    backend.gate.clear()
    gone, waits = store.write(Accepted(waiting("a"), 1)), store.write(Accepted(waiting("b"), 2))
    gone.cancel()
    backend.gate.set()
    await waits


def test_closing_writes_what_is_left(tmp_path: Path) -> None:
    backend, _ = open_at(tmp_path / "records.sqlite3")
    store = RecordStore(backend)
    for nth in range(1_000):
        store.note(Accepted(waiting(f"p{nth}"), nth))
    store.close()
    _, opening = open_at(tmp_path / "records.sqlite3")
    assert len(opening.unfinished) == 1_000


async def test_closing_gives_up_on_a_disk_that_stays_full(
    backend: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store_module, "_RETRY_S", 0.001)
    backend.failures = 1_000_000
    store = RecordStore(backend)
    store.note(Accepted(waiting("a"), 1))
    await asyncio.to_thread(store.close)
    assert "1 changes of records could not be written" in caplog.text


async def test_files_are_on_disk_before_the_records_that_name_them(
    store: RecordStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: Watched
) -> None:
    seen: list[tuple[str, int]] = []
    monkeypatch.setattr(store_module, "_sync", lambda path: seen.append((path, len(backend.sizes))))
    file = NamedFile(str(tmp_path / "x.part"), "f", 1, 1, "f", "", "output")
    await store.write(Accepted(waiting("a"), 1))
    await store.write(FilesNamed(DEFAULT_TENANT, PromptId("a"), NODE, 0, (file,)))
    await store.write(Ended(ended(waiting("a")), (str(tmp_path),)))
    assert seen == [(str(tmp_path / "x.part"), 1), (str(tmp_path), 2)]
