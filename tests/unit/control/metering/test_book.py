"""What is used is told once, by day and by prompt, through restarts and crashes; the sums agree exactly."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyserverless.control.metering import book as book_module
from comfyserverless.control.metering.amounts import Amounts, summed
from comfyserverless.control.metering.book import RECENT_STAYS
from comfyserverless.control.records.base import Retention
from comfyserverless.control.records.changes import Ended, HistoryDropped, PendingDropped, UsageAdded
from comfyserverless.control.records.usage.query import Group, UsagePage, UsageSpan
from comfyserverless.core.ids import DEFAULT_TENANT, PromptId, TenantId
from comfyserverless.core.messages import Timing
from tests.support.records import ended, waiting
from tests.support.usage import DAY_MS, Books, measured

A, BOB = PromptId("a"), TenantId("bob")
DAY, FUNCTION, NODE, PROMPT = Group.DAY, Group.FUNCTION, Group.NODE, Group.PROMPT


@pytest.fixture
async def books(tmp_path: Path) -> AsyncIterator[Books]:
    made = Books(tmp_path / "records.sqlite3")
    yield made
    made.stop()


def charges(page: UsagePage) -> dict[str | int | tuple[str | int, ...], float]:
    return {
        row.values if len(row.values) > 1 else row.values[0]: row.amounts.charged_ns / 1e9 for row in page.rows
    }


async def test_stay_is_found_by_day_function_prompt_node_model_and_worker(books: Books) -> None:
    books.accept("a")
    books.book.on_stay(measured(weights=("sd.safetensors@1",), worker="w3.12"))
    assert charges(await books.page(DAY, Group.LANE, FUNCTION)) == {(20_000, "gpu", "denoise.step"): 1.75}
    page = await books.page(PROMPT, NODE, Group.CLASS, FUNCTION, Group.MODEL, Group.WORKER)
    assert charges(page) == {("a", "3", "KSampler", "denoise.step", "sd.safetensors", "w3"): 1.75}
    assert page.total.shown() == {
        "calls": 1,
        "charged_s": 1.75,
        "queued_s": 2.0,
        "load_s": 0.5,
        "compute_s": 1.0,
        "transfer_s": 0.25,
        "waited_s": 0.125,
        "untimed_s": 0.0,
    }


async def test_lost_stay_is_charged_without_a_timing(books: Books) -> None:
    books.accept("a")
    for stay in (measured(), measured(charged_s=0.5, worker="w1.0")):
        books.book.on_stay(stay)
    (row,) = (await books.page(NODE, prompt_id=A)).rows
    assert (row.amounts.calls, row.amounts.charged_ns, row.amounts.untimed_ns) == (
        2,
        2_250_000_000,
        500_000_000,
    )


async def test_usage_adds_up_over_servers_and_a_prompt_that_runs_again_costs_both_tries(books: Books) -> None:
    books.accept("a")
    for expected_s in (1.75, 3.5, 5.25):
        books.book.on_stay(measured())
        books.book.write()
        books.crash()
        assert charges(await books.page(PROMPT)) == {"a": expected_s}
        assert charges(await books.page(DAY)) == {20_000: expected_s}
        assert books.book.service_s(DEFAULT_TENANT)["gpu"] == expected_s
        assert books.book.today_s(DEFAULT_TENANT)["gpu"] == expected_s


async def test_crash_forgets_only_what_was_not_written_yet(books: Books) -> None:
    books.accept("a")
    books.book.on_stay(measured())
    books.book.write()
    books.book.on_stay(measured())
    books.crash()
    assert charges(await books.page(DAY)) == charges(await books.page(DAY, prompt_id=A)) == {20_000: 1.75}


async def test_stays_are_written_by_themselves_and_together(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[object] = []
    monkeypatch.setattr(book_module, "WRITE_EVERY_S", 0.01)
    monkeypatch.setattr(books.store, "note", noted.append)
    for _ in range(3):
        for _ in range(50):
            books.book.on_stay(measured())
        await asyncio.sleep(0.05)
    assert [type(change) for change in noted] == [UsageAdded] * 3
    books.book.write()
    assert len(noted) == 3, "there is nothing more to write"


async def test_day_is_that_of_the_end_and_today_begins_at_midnight(books: Books) -> None:
    books.accept("a")
    books.book.on_stay(measured())
    books.clock.now_ms += DAY_MS
    assert books.book.today_s(DEFAULT_TENANT)["gpu"] == 0.0
    books.book.on_stay(measured())
    assert charges(await books.page(DAY)) == charges(await books.page(DAY, prompt_id=A))
    assert charges(await books.page(DAY)) == {20_000: 1.75, 20_001: 1.75}
    assert books.book.today_s(DEFAULT_TENANT)["gpu"] == 1.75
    books.clock.now_ms -= DAY_MS
    books.book.on_stay(measured())
    assert books.book.today_s(DEFAULT_TENANT)["gpu"] == 3.5, "a clock that is set back gives no new day"
    assert books.book.service_s(DEFAULT_TENANT)["gpu"] == 5.25


async def test_usage_of_days_stays_when_its_prompts_are_forgotten(books: Books) -> None:
    books.accept("a", "b", "c")
    for name in "abc":
        books.book.on_stay(measured(name))
    books.book.write()
    books.store.note(Ended(ended(waiting("a"))))
    books.store.note(HistoryDropped(DEFAULT_TENANT, None))
    books.store.note(PendingDropped(DEFAULT_TENANT, (PromptId("b"),)))
    books.book.on_stay(measured("a"))
    assert charges(await books.page(PROMPT)) == {"c": 1.75}
    assert charges(await books.page(DAY)) == {20_000: 7.0}


async def test_prompt_that_replaces_one_of_its_id_begins_at_nothing(books: Books) -> None:
    books.accept("a")
    books.book.on_stay(measured())
    books.store.note(Ended(ended(waiting("a"))))
    books.book.part(DEFAULT_TENANT, PromptId("other"))
    books.book.part(DEFAULT_TENANT, A)
    books.accept("a")
    assert (await books.page(NODE, prompt_id=A)).rows == []
    books.book.on_stay(measured())
    assert charges(await books.page(PROMPT)) == {"a": 1.75}


async def test_days_that_are_too_old_are_forgotten(tmp_path: Path) -> None:
    books = Books(tmp_path / "r.sqlite3", retention=Retention(usage_days=2))
    for _ in range(4):
        books.book.on_stay(measured())
        books.clock.now_ms += DAY_MS
    books.stop()
    books.start()
    assert charges(await books.page(DAY)) == {20_002: 1.75, 20_003: 1.75}
    assert books.book.service_s(DEFAULT_TENANT)["gpu"] == 7.0
    books.stop()


async def test_tenants_are_added_up_apart_or_together(books: Books) -> None:
    books.accept("a")
    books.accept("a", "b", tenant=BOB)
    for stay in (measured(), measured(tenant=BOB), measured("b", tenant=BOB, function="vae.decode")):
        books.book.on_stay(stay)
    assert charges(await books.page(PROMPT)) == {"a": 1.75}
    assert charges(await books.page(FUNCTION, tenant=BOB)) == {"denoise.step": 1.75, "vae.decode": 1.75}
    assert charges(await books.page(Group.TENANT, tenant=None)) == {"bob": 3.5, "default": 1.75}
    page = await books.page(Group.TENANT, PROMPT, tenant=None)
    assert charges(page) == {("bob", "a"): 1.75, ("bob", "b"): 1.75, ("default", "a"): 1.75}


async def test_pages_are_cut_from_one_order_and_know_the_whole(books: Books) -> None:
    books.accept(*"cab")
    for name, times in (("a", 1), ("b", 2), ("c", 3)):
        for _ in range(times):
            books.book.on_stay(measured(name))
    for is_descending, names in ((False, list("cab")), (True, list("bac"))):
        seen, after = [], None
        for _ in names:
            page = await books.page(PROMPT, span=UsageSpan(0, 1, after), is_descending=is_descending)
            seen += [row.values[0] for row in page.rows]
            after = page.rows[-1].key
        assert seen == names, "prompts are in order of arrival"
    for start, found in ((1, ["a", "b"]), (3, [])):
        page = await books.page(PROMPT, span=UsageSpan(start, 2))
        assert [row.values[0] for row in page.rows] == found
        assert (page.count, page.total.calls) == (3, 6)
    assert await books.page(PROMPT, first_day=20_001) == UsagePage([], 0, Amounts())
    assert (await books.page(DAY, last_day=20_000)).total.calls == 6


async def test_last_stays_are_remembered_one_by_one_for_their_tenant(books: Books) -> None:
    for nth in range(RECENT_STAYS + 5):
        books.book.on_stay(measured(str(nth % 3), tenant=(DEFAULT_TENANT, BOB)[nth % 2]))
    everyone = books.book.recent(None, None, 10_000)
    assert len(everyone) == RECENT_STAYS
    assert {stay.measured.spec.tenant for stay in books.book.recent(BOB, None, 50)} == {BOB}
    assert [stay.prompt_id for stay in books.book.recent(BOB, PromptId("1"), 2)] == ["1", "1"]
    assert books.book.recent(TenantId("nobody"), None, 9) == []


async def test_endless_node_ids_are_cut_and_still_add_up(books: Books) -> None:
    books.accept("a")
    for end in "xy":
        books.book.on_stay(measured(node="n" * 10_000 + end))
    assert charges(await books.page(DAY, prompt_id=A)) == {20_000: 3.5}
    ((node,),) = [row.values for row in (await books.page(NODE, prompt_id=A)).rows]
    assert len(str(node)) == 200


TIMES = st.floats(0, 100, allow_nan=False)
STAYS = st.builds(
    lambda prompt, node, function, tenant, worker, timing, lost_s, lane: measured(
        prompt, node, timing, lost_s, function=function, tenant=tenant, worker=worker, lane=lane
    ),
    st.sampled_from("ab"),
    st.sampled_from("123"),
    st.sampled_from(["denoise.step", "vae.decode"]),
    st.sampled_from([DEFAULT_TENANT, BOB]),
    st.sampled_from(["w0.0", "w0.1", "w1.0"]),
    st.builds(Timing, TIMES, TIMES, TIMES, TIMES),
    st.none() | TIMES,
    st.sampled_from(["gpu", "cpu"]),
)


@settings(max_examples=25, deadline=None)
@given(stays=st.lists(STAYS | st.sampled_from(["write", "tomorrow"]), max_size=40))
def test_whatever_happened_the_sums_of_nodes_prompts_days_and_tenants_agree(stays: list[object]) -> None:
    async def check() -> None:
        books = Books()
        for tenant in (DEFAULT_TENANT, BOB):
            books.accept("a", "b", tenant=tenant)
        for stay in stays:
            if stay == "write":
                books.book.write()
            elif stay == "tomorrow":
                books.clock.now_ms += DAY_MS
            else:
                books.book.on_stay(stay)  # type: ignore[arg-type]
        for tenant in (DEFAULT_TENANT, BOB):
            by_day = await books.page(DAY, tenant=tenant)
            by_lane = await books.page(Group.LANE, tenant=tenant)
            by_prompt = await books.page(PROMPT, tenant=tenant)
            by_node = await books.page(PROMPT, NODE, FUNCTION, Group.WORKER, tenant=tenant)
            for page in (by_day, by_lane, by_prompt, by_node):
                assert summed([row.amounts for row in page.rows]) == page.total == by_day.total
            for row in by_prompt.rows:
                nodes = [each.amounts for each in by_node.rows if each.values[0] == row.values[0]]
                assert summed(nodes) == row.amounts
            service_ns = sum(round(value * 1e9) for value in books.book.service_s(tenant).values())
            assert service_ns == pytest.approx(by_day.total.charged_ns, abs=2)
        books.stop()

    asyncio.run(check())


async def test_prompt_leaves_a_row_for_each_node_and_function_not_each_call(books: Books) -> None:
    books.accept("a")
    for nth in range(200):
        books.book.on_stay(measured(node=str(nth % 4), worker=f"w{nth % 2}.{nth}"))
    await books.page(DAY)
    with sqlite3.connect(str(books.path)) as raw:
        (rows,) = raw.execute("SELECT COUNT(*) FROM usage_prompts").fetchone()
    raw.close()
    assert rows == 4
