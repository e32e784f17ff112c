"""Usage is shown to its tenant, whole or in pages, as JSON or as a table, and to operators for everybody."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from comfyserverless.control.accounts.account import Account, new_token, token_digest
from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.control.views import NodesCached, RunStatus, SubmitRequest
from comfyserverless.core.errors import CapacityError
from comfyserverless.core.ids import DEFAULT_TENANT, NodeId, PromptId, TenantId
from comfyserverless.server.routes import usage
from tests.support.fake_engine import FakeEngine
from tests.support.tenants import FixedAccounts
from tests.support.usage import Books, measured
from tests.unit.server.conftest import StartClient

TOKENS = {name: new_token() for name in ("alice", "bob", "ops")}
ACCOUNTS = [
    Account(TenantId(name), is_operator=name == "ops", tokens=(token_digest(token),))
    for name, token in TOKENS.items()
]
ALICE, BOB = TenantId("alice"), TenantId("bob")
Client = TestClient[Any, Any]


@pytest.fixture
async def books(engine: FakeEngine) -> AsyncIterator[Books]:
    made = Books()
    engine.book = made.book
    yield made
    made.stop()


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[name]}"}


async def table(client: Client, path: str, **fields: Any) -> list[list[str]]:
    answer = await client.get(path, **fields)
    assert (answer.status, answer.content_type) == (200, "text/csv")
    assert 'filename="usage.csv"' in answer.headers["Content-Disposition"]
    return list(csv.reader(io.StringIO(await answer.text(), newline="")))


@pytest.mark.parametrize("path", ["/usage", "/api/usage"])
async def test_usage_is_added_up_by_day_unless_asked_otherwise(client: Client, books: Books, path: str) -> None:
    for _ in range(2):
        books.book.on_stay(measured())
    shown = await (await client.get(path)).json()
    assert shown.pop("rows") == [
        {
            "day": "2024-10-04",
            "calls": 2,
            "charged_s": 3.5,
            "queued_s": 4.0,
            "load_s": 1.0,
            "compute_s": 2.0,
            "transfer_s": 0.5,
            "waited_s": 0.25,
            "untimed_s": 0.0,
        }
    ]
    assert shown.pop("totals")["charged_s"] == 3.5
    assert shown == {
        "tenant": "default",
        "group_by": ["day"],
        "from": None,
        "to": None,
        "of": "all",
        "pagination": {"offset": 0, "limit": 1000, "total": 1, "has_more": False},
    }


async def test_page_of_usage_has_the_sum_of_the_whole(client: Client, books: Books) -> None:
    for function in "abc":
        books.book.on_stay(measured(function=function))
    shown = await (await client.get("/usage?group_by=function&limit=1&offset=1")).json()
    assert [row["function"] for row in shown["rows"]] == ["b"]
    assert (shown["totals"]["charged_s"], shown["pagination"]["total"]) == (5.25, 3)
    assert shown["pagination"]["has_more"]


async def test_mistakes_are_answered_with_400_and_unreadable_records_with_503(
    client: Client, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/usage?group_by=x", "/usage/invocations?limit=0"):
        answer = await client.get(path)
        assert answer.status == 400
        assert (await answer.json()).keys() == {"error"}

    async def fail(*_: object) -> None:
        raise CapacityError("the disk is gone")

    monkeypatch.setattr(books.book, "page", fail)
    for path in ("/usage", "/usage?format=csv"):
        assert (await client.get(path)).status == 503


async def test_table_is_sent_whole_in_pieces(
    client: Client, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "_ROWS_AT_ONCE", 4)
    for nth in range(12):
        books.book.on_stay(measured(function=f"f{nth:02}"))
    head, *rows = await table(client, "/usage?group_by=day,function", headers={"Accept": "text/csv"})
    assert head[:4] == ["day", "function", "calls", "charged_s"]
    assert [row[1] for row in rows] == [f"f{nth:02}" for nth in range(12)]
    _, *some = await table(client, "/usage?group_by=function&format=csv&limit=6&offset=3&sort_order=desc")
    assert [row[0] for row in some] == [f"f{nth:02}" for nth in range(8, 2, -1)]
    assert (await client.head("/usage?format=csv")).status == 200
    _, *none = await table(client, "/usage?format=csv&to=1999-12-31")
    assert none == []


async def test_tenants_see_their_own_and_operators_everybodys(start_client: StartClient, books: Books) -> None:
    client = await start_client(book=AccountBook(FixedAccounts(*ACCOUNTS)))
    for tenant, times in ((ALICE, 1), (BOB, 2)):
        books.accept("p", tenant=tenant)
        for _ in range(times):
            books.book.on_stay(measured("p", tenant=tenant))
    for name, query, sums in (
        ("alice", "", {"alice": 1.75}),
        ("alice", "&prompt_id=p", {"alice": 1.75}),
        ("ops", "", {}),
        ("ops", "&tenant=bob", {"bob": 3.5}),
        ("ops", "&tenant=*", {"alice": 1.75, "bob": 3.5}),
        ("ops", "&tenant=*&prompt_id=p", {"alice": 1.75, "bob": 3.5}),
    ):
        answer = await client.get(f"/usage?group_by=tenant{query}", headers=bearer(name))
        rows = (await answer.json())["rows"]
        assert {row["tenant"]: row["charged_s"] for row in rows} == sums
    for path in ("/usage?tenant=bob", "/usage?tenant=*&format=csv", "/usage/invocations?tenant=nobody"):
        answer = await client.get(path, headers=bearer("alice"))
        assert answer.status == 403
        assert "operators" in (await answer.json())["error"]


async def test_nodes_of_a_prompt_tell_what_they_cost_while_it_runs_and_after(
    client: Client, books: Books, engine: FakeEngine
) -> None:
    name = str((await engine.submit(SubmitRequest({}))).prompt_id)
    path = f"/api/usage/prompts/{name}"
    assert (await (await client.get(path)).json())["nodes"] == {}
    books.accept(name)
    record = engine.records[PromptId(name)]
    record.status = RunStatus.RUNNING
    record.messages.append(NodesCached(record.prompt_id, DEFAULT_TENANT, None, (NodeId("4"),), 0))
    books.book.on_stay(measured(name))
    books.book.on_stay(measured(name, worker="w1.0"))
    shown = await (await client.get(path)).json()
    assert (shown["prompt_id"], shown["status"], shown["charged_s"]) == (name, "in_progress", 3.5)
    assert {node: (cost["charged_s"], cost["cached"]) for node, cost in shown["nodes"].items()} == {
        "3": (3.5, False),
        "4": (0.0, True),
    }
    assert shown["nodes"]["3"]["workers"] == ["w0", "w1"]


async def test_prompt_of_another_tenant_is_unknown(
    start_client: StartClient, books: Books, engine: FakeEngine
) -> None:
    client = await start_client(book=AccountBook(FixedAccounts(*ACCOUNTS)))
    name = str((await engine.submit(SubmitRequest({}, tenant=BOB))).prompt_id)
    books.accept(name, tenant=BOB)
    books.book.on_stay(measured(name, tenant=BOB))
    unknown = [await client.get(f"/usage/prompts/{each}", headers=bearer("alice")) for each in (name, "x")]
    assert [answer.status for answer in unknown] == [404, 404]
    assert await unknown[0].text() == await unknown[1].text()
    assert (await client.get(f"/usage/prompts/{name}", headers=bearer("bob"))).status == 200
    for path in ("/usage?group_by=node", "/usage/invocations?"):
        shown = await (await client.get(f"{path}&prompt_id={name}", headers=bearer("alice"))).json()
        assert (shown.get("rows") or shown.get("invocations") or []) == []


async def test_last_invocations_are_shown_newest_first(client: Client, books: Books) -> None:
    books.book.on_stay(measured("a", charged_s=0.5))
    books.book.on_stay(measured("b", weights=("sd.safetensors@1",), worker="w2.7", function="vae.decode"))
    (newest, lost) = (await (await client.get("/usage/invocations")).json())["invocations"]
    assert newest == {
        "tenant": "default",
        "prompt_id": "b",
        "node": "3",
        "class_type": "KSampler",
        "function": "vae.decode",
        "lane": "gpu",
        "model": "sd.safetensors",
        "worker": "w2",
        "outcome": "done",
        "ended_ms": books.clock.now_ms,
        "charged_s": 1.75,
        "queued_s": 2.0,
        "load_s": 0.5,
        "compute_s": 1.0,
        "transfer_s": 0.25,
        "waited_s": 0.125,
        "untimed_s": 0.0,
        "held_s": 9.0,
    }
    assert (lost["outcome"], lost["charged_s"], lost["untimed_s"]) == ("lost", 0.5, 0.5)
    one = await (await client.get("/usage/invocations?limit=1&prompt_id=a")).json()
    assert [each["prompt_id"] for each in one["invocations"]] == ["a"]
