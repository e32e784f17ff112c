"""Prompts, queue and history speak ComfyUI's shapes to the engine and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from comfyserverless.control.views import RunRecord, RunStatus, SubmitResult
from comfyserverless.core.ids import DEFAULT_TENANT, PromptId
from comfyserverless.server.records import history_record
from comfyserverless.server.routes.prompts import page_of
from tests.support.fake_engine import FakeEngine

Client = TestClient[Any, Any]
UUID = "11111111-2222-3333-4444-555555555555"
GRAPH = {"1": {"class_type": "EmptyImage", "inputs": {}}}


async def submit(client: Client, **fields: Any) -> str:
    answer = await client.post("/prompt", json={"prompt": GRAPH, **fields})
    assert answer.status == 200
    return str((await answer.json())["prompt_id"])


async def test_accepted_prompt_is_answered_with_id_number_and_node_errors(client: Client) -> None:
    answer = await client.post("/api/prompt", json={"prompt": GRAPH, "prompt_id": UUID})
    assert await answer.json() == {"prompt_id": UUID, "number": 0, "node_errors": {}}


async def test_all_fields_reach_the_engine_without_secrets(client: Client, engine: FakeEngine) -> None:
    await submit(
        client,
        client_id="c1",
        number=7.5,
        front=True,
        partial_execution_targets=["9"],
        extra_data={"auth_token_comfy_org": "s1", "api_key_comfy_org": "s2", "preview_method": "none"},
    )
    request = engine.requests[0]
    assert (request.client_id, request.number, request.front, request.targets) == ("c1", 7.5, True, ["9"])
    assert request.extra_data == {"preview_method": "none", "client_id": "c1"}
    for path in ("/queue", "/api/jobs"):
        assert "s1" not in await (await client.get(path)).text()


@pytest.mark.parametrize("priority", [None, 0, -100, 100, 3.0])
async def test_priority_that_can_be_is_taken(
    client: Client, engine: FakeEngine, priority: float | None
) -> None:
    await submit(client, extra_data={"priority": priority})
    assert engine.requests[0].extra_data == {"priority": priority}


@pytest.mark.parametrize("priority", ["high", True, 1.5, 101, -101, [1]])
async def test_priority_that_cannot_be_is_refused_with_what_can(client: Client, priority: Any) -> None:
    body = {"prompt": GRAPH, "extra_data": {"priority": priority}}
    answer = await client.post("/prompt", json=body)
    assert answer.status == 400
    assert f"`extra_data.priority` must be a whole number from -100 to 100, not {priority!r}" in str(
        await answer.json()
    )


async def test_empty_target_list_is_not_all(client: Client, engine: FakeEngine) -> None:
    await submit(client, partial_execution_targets=[])
    await submit(client, partial_execution_targets=None)
    assert [request.targets for request in engine.requests] == [[], None]


@pytest.mark.parametrize(
    "content_type", ["application/json", "text/plain", "application/x-www-form-urlencoded"]
)
async def test_body_is_json_whatever_its_type_says(client: Client, content_type: str) -> None:
    body = json.dumps({"prompt": GRAPH})
    answer = await client.post("/prompt", data=body, headers={"Content-Type": content_type})
    assert answer.status == 200


async def test_rejection_has_error_and_node_errors(client: Client, engine: FakeEngine) -> None:
    error = {"type": "prompt_no_outputs", "message": "", "details": "", "extra_info": {}}
    engine.refusal = SubmitResult(None, 3.0, error, {"2": {"errors": []}})
    answer = await client.post("/prompt", json={"prompt": {}})
    assert answer.status == 400
    assert await answer.json() == {"error": error, "node_errors": {"2": {"errors": []}}}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"foo": 1}, "no_prompt"),
        ({"prompt": GRAPH, "prompt_id": "nope"}, "invalid_prompt_id"),
        ({"prompt": GRAPH, "prompt_id": UUID.replace("-", "")}, "invalid_prompt_id"),
        ({"prompt": GRAPH, "prompt_id": "AAAAAAAA-2222-3333-4444-555555555555"}, "invalid_prompt_id"),
        ({"prompt": GRAPH, "prompt_id": 5}, "invalid_prompt_id"),
        ({"prompt": GRAPH, "prompt_id": UUID + "\n"}, "invalid_prompt_id"),
        ({"prompt": GRAPH, "number": "first"}, "invalid_request"),
        ({"prompt": GRAPH, "extra_data": []}, "invalid_request"),
        ({"prompt": GRAPH, "extra_data": {"extra_pnginfo": "text"}}, "invalid_request"),
        ({"prompt": GRAPH, "extra_data": {"extra_pnginfo": [1]}}, "invalid_request"),
        ({"prompt": GRAPH, "client_id": 5}, "invalid_request"),
        ({"prompt": GRAPH, "partial_execution_targets": "9"}, "invalid_request"),
        ([], "invalid_request"),
    ],
)
async def test_bad_request_is_a_400_in_the_shape_of_prompt(client: Client, body: Any, kind: str) -> None:
    answer = await client.post("/prompt", json=body)
    shown = await answer.json()
    assert answer.status == 400
    assert shown["error"]["type"] == kind
    assert shown["error"].keys() == {"type", "message", "details", "extra_info"}
    assert shown["node_errors"] == {}


@pytest.mark.parametrize("body", [b"{", b"", b"[" * 50_000, b'{"prompt": ' + b"[" * 500 + b"]" * 500 + b"}"])
async def test_unreadable_body_is_a_400(client: Client, body: bytes) -> None:
    answer = await client.post("/prompt", data=body)
    assert answer.status == 400
    assert (await answer.json())["error"]["type"] == "invalid_request"


async def test_queue_lists_items_of_five(client: Client, engine: FakeEngine) -> None:
    first, second = await submit(client), await submit(client, extra_data={"a": 1})
    engine.records[PromptId(first)].status = RunStatus.RUNNING
    queue = await (await client.get("/queue")).json()
    assert queue["queue_running"] == [[0, first, GRAPH, {}, []]]
    assert queue["queue_pending"] == [[1, second, GRAPH, {"a": 1}, []]]
    assert await (await client.get("/prompt")).json() == {"exec_info": {"queue_remaining": 2}}


async def test_delete_drops_pending_only_and_ignores_unknown_ids(client: Client, engine: FakeEngine) -> None:
    first, second = await submit(client), await submit(client)
    engine.records[PromptId(first)].status = RunStatus.RUNNING
    answer = await client.post("/queue", json={"delete": [first, second, "nope", 5]})
    assert (answer.status, await answer.text()) == (200, "")
    assert list(engine.records) == [first]


async def test_clear_empties_the_queue(client: Client, engine: FakeEngine) -> None:
    await submit(client)
    await client.post("/queue", json={"clear": True})
    assert engine.remaining() == 0


@pytest.mark.parametrize(
    ("body", "asked"),
    [(b"", [None]), (b"{}", [None]), (b'{"prompt_id": "p"}', ["p"]), (b'{"prompt_id": 5}', [])],
)
async def test_interrupt_is_always_an_empty_200(
    client: Client, engine: FakeEngine, body: bytes, asked: list[str | None]
) -> None:
    answer = await client.post("/interrupt", data=body, headers={"Content-Type": "application/json"})
    assert (answer.status, await answer.text()) == (200, "")
    assert engine.interrupted == asked


@pytest.mark.parametrize(
    ("body", "freed"),
    [
        ({"unload_models": True}, [(True, False)]),
        ({"free_memory": True}, [(True, True)]),
        ({"unload_models": False, "free_memory": False}, []),
    ],
)
async def test_free_memory_implies_unloading(
    client: Client, engine: FakeEngine, body: dict[str, bool], freed: list[tuple[bool, bool]]
) -> None:
    assert (await client.post("/free", json=body)).status == 200
    assert engine.freed == freed


async def test_history_holds_ended_prompts_only(client: Client, engine: FakeEngine) -> None:
    first, second = await submit(client), await submit(client)
    record = engine.records[PromptId(first)]
    record.status, record.ended_ms = RunStatus.SUCCESS, 5
    assert list(await (await client.get("/history")).json()) == [first]
    assert list(await (await client.get(f"/history/{first}")).json()) == [first]
    assert await (await client.get(f"/history/{second}")).json() == {}
    assert await (await client.get("/history/nope")).json() == {}
    assert (await client.get("/history?max_items=x")).status == 400
    await client.post("/history", json={"delete": [first, "nope"]})
    assert await (await client.get("/history")).json() == {}


@pytest.mark.parametrize("count", [0, 3, 500, 501, 1_203])
async def test_long_history_is_sent_in_pieces_and_reads_the_same(
    client: Client, engine: FakeEngine, count: int
) -> None:
    for nth in range(count):
        prompt_id = PromptId(f"p{nth}")
        record = RunRecord(prompt_id, DEFAULT_TENANT, nth, {}, {}, (), None, nth, RunStatus.SUCCESS, 1, 2)
        engine.records[prompt_id] = record
    assert (await client.head("/history")).status == 200
    answer = await client.get("/history")
    assert (answer.status, answer.content_type) == (200, "application/json")
    shown = await answer.json()
    assert list(shown) == [f"p{nth}" for nth in range(count)]
    assert all(entry == history_record(engine.records[PromptId(key)]) for key, entry in shown.items())
    page = await (await client.get("/history?max_items=600&offset=1")).json()
    assert list(page) == list(shown)[1:601]


@pytest.mark.parametrize("path", ["/queue", "/history"])
async def test_deletion_is_answered_when_it_is_on_disk(client: Client, engine: FakeEngine, path: str) -> None:
    assert (await client.post(path, json={"delete": [UUID]})).status == 200
    assert (await client.post(path, json={"clear": True})).status == 200
    assert engine.settlings == 2


@pytest.mark.parametrize(
    ("max_items", "offset", "shown"),
    [
        (None, None, [0, 1, 2, 3, 4]),
        (2, None, [3, 4]),
        (2, 0, [0, 1]),
        (2, 4, [4]),
        (2, -1, [3, 4]),
        (None, 3, [3, 4]),
        (9, None, [0, 1, 2, 3, 4]),
        (0, None, []),
        (2, 9, []),
    ],
)
def test_history_pages_count_from_the_newest_end_without_offset(
    max_items: int | None, offset: int | None, shown: list[int]
) -> None:
    start, stop = page_of(5, max_items, offset)
    assert list(range(start, stop)) == shown
