"""What a database was told is there after the next start, in the order and to the extent that was asked for."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from comfyserverless.control.records.base import RecordQuery, Retention, SortKey
from comfyserverless.control.records.changes import (
    Accepted,
    FilesNamed,
    HistoryDropped,
    NamedFile,
    Parked,
    PendingDropped,
    Started,
    Stopped,
)
from comfyserverless.control.records.sqlite import SqliteRecords
from comfyserverless.control.views import RunStatus
from comfyserverless.core.errors import CapacityError
from comfyserverless.core.ids import DEFAULT_TENANT, PromptId, TenantId
from tests.support.records import NODE, ended, ids, life, open_at, waiting

ALL = frozenset(RunStatus)
A, B = PromptId("a"), PromptId("b")
BOB = TenantId("bob")
FILE = NamedFile("/o/.x.part", "/o/a_00001_.png", 17, 100, "a_00001_.png", "", "output")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "user/records.sqlite3"


@pytest.fixture
def records(path: Path) -> Iterator[SqliteRecords]:
    opened, _ = open_at(path)
    yield opened
    opened.close()


def test_ended_prompt_is_read_as_it_was(records: SqliteRecords) -> None:
    record = waiting("a", 1.5)
    records.commit(life(record), 0)
    assert records.find(DEFAULT_TENANT, A) == record
    assert records.history(DEFAULT_TENANT, 0, 9) == [record]
    assert records.find(BOB, A) is None


def test_unfinished_prompts_wait_again_in_order_of_arrival(records: SqliteRecords, path: Path) -> None:
    records.commit([Accepted(waiting("a", 2), 1), Accepted(waiting("b", 1), 2), *life(waiting("c"))], 0)
    records.commit([Started(DEFAULT_TENANT, A, 5)], 0)
    records.close()
    reopened, opening = open_at(path)
    assert [(each.record.prompt_id, each.crashes) for each in opening.unfinished] == [("a", 1), ("b", 0)]
    assert {each.record.status for each in opening.unfinished} == {RunStatus.PENDING}
    assert opening.unfinished[0].record.prompt == waiting("a").prompt
    assert opening.counters == {DEFAULT_TENANT: 1}
    reopened.close()
    _, opening = open_at(path)
    assert [each.crashes for each in opening.unfinished] == [1, 0], (
        "a start that runs nothing is no crash of theirs"
    )


def test_parked_prompt_is_no_crash_older_and_stopped_one_is_known(records: SqliteRecords, path: Path) -> None:
    for name in (A, B):
        records.commit([Accepted(waiting(name), 0), Started(DEFAULT_TENANT, name, 5)], 0)
    records.commit([Parked(DEFAULT_TENANT, A), Stopped(DEFAULT_TENANT, B)], 0)
    records.close()
    _, opening = open_at(path)
    assert [(each.crashes, each.is_stopped) for each in opening.unfinished] == [(0, False), (1, True)]


def test_dropped_prompts_do_not_come_back(records: SqliteRecords, path: Path) -> None:
    records.commit([Accepted(waiting("a"), 0), Accepted(waiting("b"), 0)], 0)
    records.commit([FilesNamed(DEFAULT_TENANT, A, NODE, 0, (FILE,))], 0)
    records.commit([PendingDropped(DEFAULT_TENANT, (A,))], 0)
    records.close()
    _, opening = open_at(path)
    assert [(each.record.prompt_id, each.saves) for each in opening.unfinished] == [("b", {})]


def test_named_files_are_kept_until_their_prompt_has_ended(records: SqliteRecords, path: Path) -> None:
    records.commit([Accepted(waiting("a"), 0), FilesNamed(DEFAULT_TENANT, A, NODE, 0, (FILE, FILE))], 0)
    records.commit([FilesNamed(DEFAULT_TENANT, A, NODE, 0, (FILE,))], 0)
    records.close()
    reopened, opening = open_at(path)
    assert opening.unfinished[0].saves == {(NODE, 0): (FILE,)}
    reopened.commit(life(waiting("a"))[2:], 0)
    reopened.close()
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT * FROM saves").fetchall() == []
    raw.close()


def test_id_that_is_used_again_replaces_the_ended_prompt(records: SqliteRecords) -> None:
    records.commit([*life(waiting("a")), *life(waiting("b"))], 0)
    records.commit([Accepted(waiting("a", 7), 0)], 0)
    assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["b"]
    records.commit(life(waiting("a", 7))[2:], 0)
    assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["b", "a"]


def test_history_is_bounded_for_each_tenant_and_drops_the_oldest_end(path: Path) -> None:
    records, _ = open_at(path, Retention(count=2))
    for name in "abcd":
        records.commit([*life(waiting(name)), *life(waiting(name, tenant=BOB))][: 6 if name < "c" else 3], 0)
    assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["c", "d"]
    assert ids(records.history(BOB, 0, 9)) == ["a", "b"]
    records.commit([HistoryDropped(DEFAULT_TENANT, (PromptId("c"), PromptId("zzz"))), *life(waiting("e"))], 0)
    assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["d", "e"]
    records.commit([HistoryDropped(DEFAULT_TENANT, None), *life(waiting("f")), *life(waiting("g"))], 0)
    assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["f", "g"]
    assert ids(records.history(BOB, 0, 9)) == ["a", "b"]
    records.close()


def test_history_that_is_too_old_is_forgotten_and_waiting_prompts_are_not(path: Path) -> None:
    records, _ = open_at(path, Retention(days=1))
    day_ms = 86_400_000
    records.commit([*life(waiting("old"), 5_000), *life(waiting("new"), 6_000), Accepted(waiting("w"), 0)], 0)
    records.tidy(day_ms + 5_000)
    assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["old", "new"]
    records.tidy(day_ms + 5_001)
    assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["new"]
    records.close()
    records, opening = open_at(path, Retention(days=1), now_ms=3 * day_ms)
    assert (ids(records.history(DEFAULT_TENANT, 0, 9)), len(opening.unfinished)) == ([], 1)
    records.close()


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (RecordQuery(DEFAULT_TENANT, ALL), ["d", "c", "b", "a"]),
        (RecordQuery(DEFAULT_TENANT, ALL, is_descending=False), ["a", "b", "c", "d"]),
        (RecordQuery(DEFAULT_TENANT, frozenset({RunStatus.ERROR})), ["d", "b"]),
        (RecordQuery(DEFAULT_TENANT, ALL, workflow="even"), ["c", "a"]),
        (RecordQuery(DEFAULT_TENANT, ALL, sort=SortKey.DURATION), ["a", "b", "c", "d"]),
        (RecordQuery(DEFAULT_TENANT, frozenset()), []),
        (RecordQuery(BOB, ALL), []),
    ],
)
def test_list_is_filtered_sorted_and_paged(
    records: SqliteRecords, query: RecordQuery, found: list[str]
) -> None:
    for nth, name in enumerate("abcd"):
        record = waiting(name, workflow=("even", "odd")[nth % 2])
        record.created_ms = nth
        status = (RunStatus.SUCCESS, RunStatus.ERROR)[nth % 2]
        records.commit(life(record, 9_000 - nth, status), 0)
    keys = records.keys(query, 0, 9)
    loaded = records.load([key for _, key in keys])
    assert [loaded[key].prompt_id for _, key in keys] == found
    assert [value for value, _ in keys] == [query.value(loaded[key]) for _, key in keys]
    assert records.count(query) == len(found)
    assert records.keys(query, 1, 2) == keys[1:3]


def test_failed_commit_leaves_nothing_of_it(records: SqliteRecords) -> None:
    records.commit(life(waiting("a")), 0)
    broken = ended(waiting("c"))
    broken.messages = [object()]  # type: ignore[list-item]
    with pytest.raises(TypeError):
        records.commit([*life(waiting("b")), Accepted(waiting("c"), 0), type(life(waiting("x"))[2])(broken)], 0)
    assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["a"]
    assert records.history_count(DEFAULT_TENANT) == 1


def test_closed_database_says_that_it_cannot_be_used_now(path: Path) -> None:
    records, _ = open_at(path)
    records.close()
    with pytest.raises(CapacityError, match="cannot be used now"):
        records.find(DEFAULT_TENANT, A)


def test_records_are_readable_by_their_owner_only(records: SqliteRecords, path: Path) -> None:
    records.commit(life(waiting("a")), 0)
    modes = {each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
    assert modes == {0o600}
