"""State what every database of records must do, as tests that each kind of database runs as its own.

What it was told is there after the next start, in the order and to the extent that was asked for.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import pytest

from comfyserverless.control.metering.amounts import Amounts, Cell, CellKey, DayKey
from comfyserverless.control.records.base import Backend, Opening, RecordQuery, Retention, SortKey
from comfyserverless.control.records.changes import (
    Accepted,
    Ended,
    FilesNamed,
    HistoryDropped,
    NamedFile,
    Parked,
    PendingDropped,
    Started,
    Stopped,
    UsageAdded,
)
from comfyserverless.control.records.usage.query import Group, UsageQuery, UsageSpan
from comfyserverless.control.views import RunStatus
from comfyserverless.core.errors import CapacityError
from comfyserverless.core.ids import DEFAULT_TENANT, NodeId, PromptId, TenantId
from tests.support.records import NODE, ended, ids, life, waiting

ALL = frozenset(RunStatus)
A, B = PromptId("a"), PromptId("b")
BOB = TenantId("bob")
FILE = NamedFile("/o/.x.part", "/o/a_00001_.png", 17, 100, "a_00001_.png", "", "output")


class Place(ABC):
    """Where one database is kept; servers open it one after the other."""

    @abstractmethod
    def open(self, retention: Retention | None = None, now_ms: int = 0) -> tuple[Backend, Opening]:
        """Open it as a server that starts does."""

    def opening(self) -> Opening:
        """Return what a server that starts finds; it ends at once."""
        records, opening = self.open()
        records.close()
        return opening

    @abstractmethod
    def rows(self, statement: str) -> list[Any]:
        """Look into its tables."""


class RecordsContract:
    """What a database must do. A class of its own kind inherits this and has a fixture `place`."""

    @pytest.fixture
    def records(self, place: Place) -> Iterator[Backend]:
        opened, _ = place.open()
        yield opened
        opened.close()

    def test_ended_prompt_is_read_as_it_was(self, records: Backend) -> None:
        record = waiting("a", 1.5)
        records.commit(life(record), 0)
        assert records.find(DEFAULT_TENANT, A) == record
        assert records.history(DEFAULT_TENANT, 0, 9) == [record]
        assert records.find(BOB, A) is None

    def test_unfinished_prompts_wait_again_in_order_of_arrival(self, records: Backend, place: Place) -> None:
        records.commit([Accepted(waiting("a", 2), 1), Accepted(waiting("b", 1), 2), *life(waiting("c"))], 0)
        records.commit([Started(DEFAULT_TENANT, A, 5)], 0)
        records.close()
        reopened, opening = place.open()
        assert [(each.record.prompt_id, each.crashes) for each in opening.unfinished] == [("a", 1), ("b", 0)]
        assert {each.record.status for each in opening.unfinished} == {RunStatus.PENDING}
        assert opening.unfinished[0].record.prompt == waiting("a").prompt
        assert opening.counters == {DEFAULT_TENANT: 1}
        reopened.close()
        opening = place.opening()
        assert [each.crashes for each in opening.unfinished] == [1, 0], (
            "a start that runs nothing is no crash of theirs"
        )

    def test_parked_prompt_is_no_crash_older_and_stopped_one_is_known(
        self, records: Backend, place: Place
    ) -> None:
        for name in (A, B):
            records.commit([Accepted(waiting(name), 0), Started(DEFAULT_TENANT, name, 5)], 0)
        records.commit([Parked(DEFAULT_TENANT, A), Stopped(DEFAULT_TENANT, B)], 0)
        records.close()
        opening = place.opening()
        assert [(each.crashes, each.is_stopped) for each in opening.unfinished] == [(0, False), (1, True)]

    def test_dropped_prompts_do_not_come_back(self, records: Backend, place: Place) -> None:
        records.commit([Accepted(waiting("a"), 0), Accepted(waiting("b"), 0)], 0)
        records.commit([FilesNamed(DEFAULT_TENANT, A, NODE, 0, (FILE,))], 0)
        records.commit([PendingDropped(DEFAULT_TENANT, (A,))], 0)
        records.close()
        opening = place.opening()
        assert [(each.record.prompt_id, each.saves) for each in opening.unfinished] == [("b", {})]

    def test_named_files_are_kept_until_their_prompt_has_ended(self, records: Backend, place: Place) -> None:
        records.commit([Accepted(waiting("a"), 0), FilesNamed(DEFAULT_TENANT, A, NODE, 0, (FILE, FILE))], 0)
        records.commit([FilesNamed(DEFAULT_TENANT, A, NODE, 0, (FILE,))], 0)
        records.close()
        reopened, opening = place.open()
        assert opening.unfinished[0].saves == {(NODE, 0): (FILE,)}
        reopened.commit(life(waiting("a"))[2:], 0)
        reopened.close()
        assert place.rows("SELECT * FROM saves") == []

    def test_id_that_is_used_again_replaces_the_ended_prompt(self, records: Backend) -> None:
        records.commit([*life(waiting("a")), *life(waiting("b"))], 0)
        records.commit([Accepted(waiting("a", 7), 0)], 0)
        assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["b"]
        records.commit(life(waiting("a", 7))[2:], 0)
        assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["b", "a"]

    def test_history_is_bounded_for_each_tenant_and_drops_the_oldest_end(self, place: Place) -> None:
        records, _ = place.open(Retention(count=2))
        for name in "abcd":
            records.commit(
                [*life(waiting(name)), *life(waiting(name, tenant=BOB))][: 6 if name < "c" else 3], 0
            )
        assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["c", "d"]
        assert ids(records.history(BOB, 0, 9)) == ["a", "b"]
        records.commit(
            [HistoryDropped(DEFAULT_TENANT, (PromptId("c"), PromptId("zzz"))), *life(waiting("e"))], 0
        )
        assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["d", "e"]
        records.commit([HistoryDropped(DEFAULT_TENANT, None), *life(waiting("f")), *life(waiting("g"))], 0)
        assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["f", "g"]
        assert ids(records.history(BOB, 0, 9)) == ["a", "b"]
        records.close()

    def test_history_that_is_too_old_is_forgotten_and_waiting_prompts_are_not(self, place: Place) -> None:
        records, _ = place.open(Retention(days=1))
        day_ms = 86_400_000
        records.commit(
            [*life(waiting("old"), 5_000), *life(waiting("new"), 6_000), Accepted(waiting("w"), 0)], 0
        )
        records.tidy(day_ms + 5_000)
        assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["old", "new"]
        records.tidy(day_ms + 5_001)
        assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["new"]
        records.close()
        records, opening = place.open(Retention(days=1), now_ms=3 * day_ms)
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
        self, records: Backend, query: RecordQuery, found: list[str]
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

    def test_failed_commit_leaves_nothing_of_it(self, records: Backend) -> None:
        records.commit(life(waiting("a")), 0)
        broken = ended(waiting("c"))
        broken.messages = [object()]  # type: ignore[list-item]
        with pytest.raises(TypeError):
            records.commit([*life(waiting("b")), Accepted(waiting("c"), 0), Ended(broken)], 0)
        assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["a"]
        assert records.history_count(DEFAULT_TENANT) == 1

    def test_closed_database_says_that_it_cannot_be_used_now(self, place: Place) -> None:
        records, _ = place.open()
        records.close()
        with pytest.raises(CapacityError, match="cannot be used now"):
            records.find(DEFAULT_TENANT, A)

    def test_texts_and_numbers_of_any_kind_are_kept(self, records: Backend, place: Place) -> None:
        odd = "\x00 \x1a1 \x1a0 \\x00 ö \U0001f600 %s ? ' \n"
        node = NodeId(f"{odd}{'n' * 5_000}")
        record = waiting("a", -1e300, TenantId(odd), workflow=odd)
        record.client_id, record.created_ms = odd, 1 << 52
        records.commit([Accepted(record, 1 << 40)], 0)
        records.commit([FilesNamed(record.tenant, A, node, 0, (FILE,))], 0)
        records.close()
        reopened, opening = place.open()
        assert [each.record for each in opening.unfinished] == [record]
        assert opening.unfinished[0].saves == {(node, 0): (FILE,)}
        assert opening.counters == {odd: 1 << 40}
        reopened.commit([Started(record.tenant, A, 5), *life(waiting("a", tenant=record.tenant))[2:]], 0)
        assert reopened.count(RecordQuery(record.tenant, ALL, workflow=odd)) == 1
        reopened.close()

    def test_usage_of_a_node_with_a_very_long_id_is_kept(self, records: Backend) -> None:
        node = NodeId("".join(random.Random(0).choices("abcdefgh", k=20_000)))  # nothing compresses it
        used = Amounts(calls=1)
        cells = {CellKey(DEFAULT_TENANT, A, 7, node, "f", "m", "w0"): Cell("KSampler", "gpu", used)}
        records.commit([*life(waiting("a")), UsageAdded({}, cells)], 0)
        page = records.usage(UsageQuery(DEFAULT_TENANT, (Group.NODE,)), UsageSpan(0, 9))
        assert [row.amounts.calls for row in page.rows] == [1]
        assert node.startswith(str(page.rows[0].values[0]))

    def test_many_prompts_are_dropped_at_once(self, records: Backend, place: Place) -> None:
        names = [PromptId(f"p{nth}") for nth in range(1_200)]
        records.commit([Accepted(waiting(name), 0) for name in names], 0)
        records.commit([PendingDropped(DEFAULT_TENANT, tuple(names[:-1])), *life(waiting("kept"))], 0)
        records.close()
        reopened, opening = place.open()
        assert [each.record.prompt_id for each in opening.unfinished] == names[-1:]
        assert ids(reopened.history(DEFAULT_TENANT, 0, 9)) == ["kept"]
        reopened.close()

    def test_usage_adds_up_and_that_of_a_prompt_goes_with_it(self, records: Backend, place: Place) -> None:
        used = Amounts(calls=1, compute_ns=3 << 40)
        days = {DayKey(DEFAULT_TENANT, 7, "gpu", "f"): used}
        cells = {CellKey(DEFAULT_TENANT, A, 7, NODE, "f", "m", "w0"): Cell("KSampler", "gpu", used)}
        records.commit([*life(waiting("a")), UsageAdded(days, cells)], 0)
        records.commit([UsageAdded(days, cells)], 0)
        by_day, by_node = (Group.DAY, Group.FUNCTION), (Group.PROMPT, Group.NODE)
        for groups, values in ((by_day, (7, "f")), (by_node, ("a", NODE))):
            page = records.usage(UsageQuery(DEFAULT_TENANT, groups), UsageSpan(0, 9))
            assert [(row.values, row.amounts.calls) for row in page.rows] == [(values, 2)]
            assert (page.count, page.total.compute_ns) == (1, 6 << 40)
        records.commit([HistoryDropped(DEFAULT_TENANT, (A,))], 0)
        assert records.usage(UsageQuery(DEFAULT_TENANT, by_node), UsageSpan(0, 9)).rows == []
        records.close()
        reopened, opening = place.open(now_ms=7 * 86_400_000)
        assert opening.charged_ns == opening.charged_today_ns == {DEFAULT_TENANT: {"gpu": 6 << 40}}
        reopened.close()

    def test_history_is_counted_right_within_one_commit(self, place: Place) -> None:
        records, _ = place.open(Retention(count=3))
        changes = [*life(waiting("a")), HistoryDropped(DEFAULT_TENANT, None)]
        for name in ("b", "c", "c", "d"):
            changes += life(waiting(name))
        records.commit([*changes, HistoryDropped(DEFAULT_TENANT, (PromptId("b"),))], 0)
        assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["c", "d"]
        records.commit([change for name in "ef" for change in life(waiting(name))], 0)
        assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["d", "e", "f"]
        records.close()
