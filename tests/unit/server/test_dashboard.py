"""The dashboard's page cannot load foreign things, and its data shows senders what is theirs."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from comfyserverless.control.accounts.account import Account, new_token, token_digest
from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.control.metering.measured import Meter
from comfyserverless.control.overview.overview import Overview
from comfyserverless.control.views import RunRecord, RunStatus
from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.scheduling.state import SchedulingConfig, SchedulingState
from comfyserverless.server.overview import document
from tests.support.fake_engine import FakeEngine
from tests.support.metering import stay
from tests.support.tenants import FixedAccounts
from tests.unit.server.conftest import StartClient
from tests.unit.server.test_system import GPU

Client = TestClient[Any, Any]
ROUTE = "/comfyserverless/overview"


def add_prompt(engine: FakeEngine, prompt_id: str, tenant: str = "default", **fields: Any) -> None:
    record = RunRecord(PromptId(prompt_id), TenantId(tenant), 0.0, {}, {}, (), None, created_ms=1_500)
    for name, value in fields.items():
        setattr(record, name, value)
    engine.records[record.prompt_id] = record


@pytest.fixture
def meter(engine: FakeEngine) -> Meter:
    """Return the meter of the engine's overview."""
    made = Meter()
    engine.overview = Overview(
        SchedulingState(SchedulingConfig(slack_s=2.0)), made, itertools.count(7.0).__next__
    )
    return made


def tell(engine: FakeEngine, *tenants: str) -> None:
    """Let a call of each tenant end."""
    for tenant in tenants:
        engine.overview._on_measured(stay(8.0, 9.5, tenant=tenant))


async def test_page_may_load_nothing_from_elsewhere(client: Client) -> None:
    answer = await client.get("/dashboard")
    assert answer.status == 200
    assert answer.content_type == "text/html"
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    text = await answer.text()
    assert "http:" not in text
    assert "https:" not in text


async def test_single_user_sees_queue_workers_and_recovery(client: Client, engine: FakeEngine) -> None:
    add_prompt(engine, "p1", status=RunStatus.RUNNING, started_ms=2_500, current_node="3")
    add_prompt(engine, "p2")
    engine.views = [GPU]
    shown = await (await client.get(ROUTE)).json()
    assert shown["is_operator"]
    assert [(each["tenant"], each["pending"], each["running"]) for each in shown["tenants"]] == [
        ("default", 1, 1)
    ]
    assert shown["queue"] == [
        {
            "prompt_id": "p1",
            "tenant": "default",
            "status": "running",
            "created_s": 1.5,
            "started_s": 2.5,
            "node": "3",
        },
        {
            "prompt_id": "p2",
            "tenant": "default",
            "status": "pending",
            "created_s": 1.5,
            "started_s": None,
            "node": None,
        },
    ]
    assert [each["slot"] for each in shown["workers"]] == ["w0"]
    assert shown["recovery"]["workers_lost"] == 0


async def test_second_answer_holds_what_is_new_only(client: Client, engine: FakeEngine, meter: Meter) -> None:
    tell(engine, "default")
    engine.overview.sample()
    first = await (await client.get(ROUTE)).json()
    assert first["is_full"]
    assert [(each["prompt_id"], each["function"]) for each in first["stretches"]] == [
        ("default-p", "denoise.step")
    ]
    assert first["stretches"][0]["ended_s"] - first["stretches"][0]["began_s"] == pytest.approx(1.5, abs=0.002)
    assert first["samples"][0]["shares"] == [["default", 0.0, 0.0]]
    second = await (await client.get(ROUTE, params={"since": first["cursor"]})).json()
    assert (second["is_full"], second["samples"], second["stretches"]) == (False, [], [])
    assert second["cursor"] == first["cursor"]


@pytest.mark.parametrize("is_operator", [True, False])
async def test_tenants_see_their_own_share_and_operators_all(
    start_client: StartClient, engine: FakeEngine, meter: Meter, is_operator: bool
) -> None:
    token = new_token()
    account = Account(TenantId("alice"), tokens=(token_digest(token),), is_operator=is_operator)
    client = await start_client(AccountBook(FixedAccounts(account, Account(TenantId("bob")))))
    for tenant in ("alice", "bob"):
        add_prompt(engine, f"{tenant}-p", tenant)
    tell(engine, "alice", "bob")
    engine.overview.sample()
    engine.views = [replace(GPU, running=("bob-p#0/3/1",))]
    answer = await client.get(ROUTE, headers={"Authorization": f"Bearer {token}"})
    shown = await answer.json()
    expected = {"alice", "bob"} if is_operator else {"alice"}
    assert {each["tenant"] for each in shown["tenants"]} == expected
    assert {each["tenant"] for each in shown["queue"]} == expected
    assert {each["tenant"] for each in shown["stretches"]} == expected
    assert {tenant for sample in shown["samples"] for tenant, _, _ in sample["shares"]} == expected
    assert ("bob" in await answer.text()) == is_operator


async def test_without_a_token_the_dashboard_is_not_served(start_client: StartClient) -> None:
    client = await start_client(AccountBook(FixedAccounts()))
    assert (await client.get(ROUTE)).status == 401
    page = await client.get("/dashboard", headers={"Accept": "text/html"}, allow_redirects=False)
    assert (page.status, page.headers["Location"]) == (303, "/login")


async def test_queue_and_tenants_are_bounded(start_client: StartClient, engine: FakeEngine) -> None:
    names = [f"t{number}" for number in range(document.TENANTS_SHOWN + 5)]
    token = new_token()
    operator = Account(TenantId("root"), tokens=(token_digest(token),), is_operator=True)
    book = AccountBook(FixedAccounts(operator, *(Account(TenantId(name)) for name in names)))
    client = await start_client(book)
    for name in names[-20:]:
        for number in range(document.PROMPTS_SHOWN_PER_TENANT + 5):
            add_prompt(engine, f"{name}-{number}", name)
    shown = await (await client.get(ROUTE, headers={"X-API-Key": token})).json()
    assert len(shown["queue"]) == document.PROMPTS_SHOWN
    assert len(shown["tenants"]) == document.TENANTS_SHOWN
    assert shown["tenants_hidden"] == 6
    assert {each["tenant"] for each in shown["tenants"][:20]} == set(names[-20:]), "busy ones come first"
