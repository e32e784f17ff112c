"""What packs are told about the queue and history, and what they can stop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from aiohttp.test_utils import TestClient

from comfyserverless.control.views import RunStatus
from comfyserverless.core.ids import PromptId
from tests.support.fake_engine import FakeEngine

Client = TestClient[Any, Any]
IDS = [f"{number}0000000-0000-4000-8000-000000000000" for number in range(3)]


async def submitted(client: Client, engine: FakeEngine) -> None:
    for run in IDS:
        await client.post("/prompt", json={"prompt": {"1": {}}, "prompt_id": run, "client_id": "c"})
    engine.records[PromptId(IDS[0])].status = RunStatus.SUCCESS
    engine.records[PromptId(IDS[0])].ended_ms = 5
    engine.records[PromptId(IDS[1])].status = RunStatus.RUNNING


async def test_queue_is_shown_as_the_route_shows_it(client: Client, engine: FakeEngine) -> None:
    await submitted(client, engine)
    shown = engine.hosting.asking["queue"](None, {"tenant": "default"})
    route = await (await client.get("/queue")).json()
    assert shown == {"running": route["queue_running"], "pending": route["queue_pending"]}
    assert shown["running"][0][1] == IDS[1]
    assert shown["running"][0][3]["client_id"] == "c"
    assert engine.hosting.asking["queue"](None, {}) == {"running": [], "pending": []}


async def test_history_is_shown_as_the_route_shows_it(client: Client, engine: FakeEngine) -> None:
    await submitted(client, engine)
    history = engine.hosting.asking["history"]
    route = await (await client.get("/history")).json()
    assert list(route) == [IDS[0]]
    asked = {"tenant": "default", "prompt_id": None, "max_items": None}
    assert await history(None, asked) == route
    assert await history(None, {**asked, "prompt_id": IDS[0]}) == route
    assert await history(None, {**asked, "prompt_id": IDS[1]}) == {}
    assert await history(None, {**asked, "max_items": 0}) == {}
    assert await history(None, {**asked, "tenant": "other"}) == {}


async def test_a_node_stops_its_own_prompt_and_a_handler_its_tenants(
    client: Client, engine: FakeEngine
) -> None:
    await submitted(client, engine)
    context: Any = SimpleNamespace(hidden=SimpleNamespace(prompt_id=IDS[1], tenant="default"))
    engine.hosting.asking["interrupt"](context, {"tenant": "other"})
    engine.hosting.asking["interrupt"](None, {"tenant": "default"})
    assert engine.interrupted == [IDS[1], None]
