"""The jobs routes filter, sort, page and cancel as the page expects."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from comfyserverless.control.views import RunRecord, RunStatus
from comfyserverless.core.ids import DEFAULT_TENANT, PromptId
from tests.support.fake_engine import FakeEngine

Client = TestClient[Any, Any]


def uuid_of(index: int) -> str:
    return f"00000000-0000-0000-0000-{index:012d}"


@pytest.fixture(autouse=True)
def records(engine: FakeEngine) -> None:
    """Fill the engine: job n was created at n and is in the n-th state."""
    for index, status in enumerate(RunStatus):
        record = RunRecord(PromptId(uuid_of(index)), DEFAULT_TENANT, index, {}, {}, (), None, created_ms=index)
        record.status = status
        if status not in (RunStatus.PENDING, RunStatus.RUNNING):
            record.started_ms, record.ended_ms = 100, 200 - index
        record.workflow = f"w{index}"
        engine.records[record.prompt_id] = record


async def listed(client: Client, query: str) -> list[int]:
    answer = await client.get(f"/api/jobs?{query}")
    assert answer.status == 200, await answer.text()
    return [int(job["id"][-1]) for job in (await answer.json())["jobs"]]


@pytest.mark.parametrize(
    ("query", "jobs"),
    [
        ("", [5, 4, 3, 2, 1, 0]),
        ("sort_order=asc", [0, 1, 2, 3, 4, 5]),
        ("status=in_progress,pending&limit=200&offset=0", [1, 0]),
        ("status=completed,failed,cancelled&limit=64&offset=0", [5, 4, 3, 2]),
        ("status=cancelled", [4]),
        ("status=failed", [5, 3]),
        ("limit=2", [5, 4]),
        ("limit=2&offset=4", [1, 0]),
        ("limit=2&offset=-3", [5, 4]),
        ("offset=99", []),
        ("workflow_id=w3", [3]),
        ("status=completed,failed,cancelled&sort_by=execution_duration&sort_order=asc", [5, 4, 3, 2]),
    ],
)
async def test_jobs_are_filtered_sorted_and_paged(client: Client, query: str, jobs: list[int]) -> None:
    assert await listed(client, query) == jobs


async def test_pagination_tells_what_is_left(client: Client) -> None:
    first = await (await client.get("/api/jobs?limit=4")).json()
    assert first["pagination"] == {"offset": 0, "limit": 4, "total": 6, "has_more": True}
    rest = await (await client.get("/api/jobs?offset=4")).json()
    assert rest["pagination"] == {"offset": 4, "limit": None, "total": 6, "has_more": False}


@pytest.mark.parametrize(
    "query", ["status=done", "limit=0", "limit=-1", "limit=x", "offset=x", "sort_by=size", "sort_order=up"]
)
async def test_bad_query_is_a_400_that_says_why(client: Client, query: str) -> None:
    answer = await client.get(f"/api/jobs?{query}")
    assert answer.status == 400
    assert isinstance((await answer.json())["error"], str)


async def test_jobs_exist_only_below_api(client: Client) -> None:
    assert (await client.get("/jobs")).status == 404


async def test_single_job_is_shown_or_404(client: Client) -> None:
    assert (await (await client.get(f"/api/jobs/{uuid_of(2)}")).json())["outputs"] == {}
    assert (await client.get(f"/api/jobs/{uuid_of(9)}")).status == 404
    assert (await client.get("/api/jobs/nope")).status == 404


@pytest.mark.parametrize(("index", "cancelled"), [(0, True), (1, True), (2, False), (9, False)])
async def test_cancel_tells_whether_it_did_anything(client: Client, index: int, cancelled: bool) -> None:
    answer = await client.post(f"/api/jobs/{uuid_of(index)}/cancel")
    assert answer.status == 200
    assert await answer.json() == {"cancelled": cancelled}


async def test_several_jobs_are_cancelled_at_once(client: Client) -> None:
    answer = await client.post("/api/jobs/cancel", json={"job_ids": [uuid_of(0), uuid_of(2)]})
    assert await answer.json() == {"cancelled": True}
    answer = await client.post("/api/jobs/cancel", json={"job_ids": [uuid_of(2)]})
    assert await answer.json() == {"cancelled": False}


async def test_malformed_ids_are_named(client: Client) -> None:
    answer = await client.post("/api/jobs/cancel", json={"job_ids": [uuid_of(0), "nope", 5]})
    assert answer.status == 400
    assert (await answer.json())["invalid_ids"] == ["nope", 5]
    assert (await client.post("/api/jobs/cancel", data=b"{")).status == 400
    assert (await client.post("/api/jobs/cancel", json={})).status == 400
