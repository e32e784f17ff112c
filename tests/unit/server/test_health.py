"""Machines ask how the server is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from prometheus_client.parser import text_string_to_metric_families

from comfyserverless.control.accounts.account import Account, new_token, token_digest
from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.core.ids import TenantId
from tests.support.fake_engine import FakeEngine
from tests.support.tenants import FixedAccounts
from tests.unit.server.conftest import StartClient

TOKENS = {name: new_token() for name in ("alice", "ops")}
ALICE, OPS = (Account(TenantId(name), tokens=(token_digest(token),)) for name, token in TOKENS.items())
Client = TestClient[Any, Any]


@pytest.fixture
async def guarded(start_client: StartClient) -> Client:
    return await start_client(book=AccountBook(FixedAccounts(ALICE, replace(OPS, is_operator=True))))


async def samples(client: Client, **headers: str) -> dict[tuple[str, ...], float]:
    """Return the values of all samples, by name and values of labels."""
    answer = await client.get("/metrics", headers=headers)
    assert answer.status == 200
    return {
        (sample.name.removeprefix("comfyserverless_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(await answer.text())
        for sample in family.samples
    }


async def test_a_server_that_answers_is_alive_whatever_is_in_its_way(
    client: Client, engine: FakeEngine
) -> None:
    engine.obstructed = ["No worker is ready"]
    answer = await client.get("/healthz")
    assert (answer.status, await answer.json()) == (200, {"status": "alive"})
    assert answer.headers["Cache-Control"] == "no-store"


async def test_readiness_names_what_is_in_the_way(client: Client, engine: FakeEngine) -> None:
    assert (await client.get("/readyz")).status == 200
    engine.obstructed = ["No worker is ready", "The server is stopping"]
    answer = await client.get("/readyz")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
    assert (await answer.json())["reasons"] == ["No worker is ready", "The server is stopping"]


async def test_health_is_told_to_everybody_and_metrics_only_to_operators(guarded: Client) -> None:
    for path in ("/healthz", "/readyz"):
        assert (await guarded.get(path)).status == 200
        assert (await guarded.head(path)).status == 200
        assert (await guarded.post(path)).status == 405
        assert (await guarded.get(path, headers={"X-API-Key": "csl_wrong"})).status == 200
    assert (await guarded.get("/metrics")).status == 401
    assert (await guarded.get("/metrics", headers={"X-API-Key": TOKENS["alice"]})).status == 403
    assert await samples(guarded, Authorization=f"Bearer {TOKENS['ops']}")


async def test_token_of_the_metrics_opens_them_and_nothing_else(start_client: StartClient) -> None:
    token = "a token of a monitoring system"
    client = await start_client(book=AccountBook(FixedAccounts(ALICE)), metrics_token=token)
    headers = {"Authorization": f"Bearer {token}"}
    assert await samples(client, **headers)
    for path in ("/prompt", "/comfyserverless/workers", "/metrics/", "/api/metrics"):
        assert (await client.get(path, headers=headers)).status == 401
    assert (await client.post("/metrics", headers=headers)).status == 401
    for wrong in (token[:-1], "", "\u00e9" * 20):
        assert (await client.get("/metrics", headers={"Authorization": f"Bearer {wrong}"})).status == 401
    assert (await client.get("/metrics", headers={"Authorization": f"Basic {token}"})).status == 401
