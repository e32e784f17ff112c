"""Ask the real server what the original was asked, and compare status, type and shape of the answers."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from PIL import Image

from tests.support.client import Client
from tests.support.recorded import stand_in
from tests.support.server import RunningServer

DATA = Path(__file__).parent / "data"
GETS: dict[str, Any] = json.loads((DATA / "get.json").read_text())
PROMPTS: dict[str, Any] = json.loads((DATA / "prompt.json").read_text())
POSTS = {
    name: answer for name, answer in json.loads((DATA / "after.json").read_text()).items() if "POST" in name
}
#: Depend on what ran before, so only their status and type are compared.
CHANGING = {"/history?max_items=1", "/api/jobs", "/internal/logs", "/view_metadata/loras"}

#: Newer servers say more than the recorded one.
NEWER_ERRORS = {"cycle": {"1": ["dependency_cycle"], "2": ["dependency_cycle"]}}

IMAGE_GRAPH: dict[str, Any] = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": 255}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "contract"}},
}


def shape(value: Any) -> Any:
    """Reduce JSON to what clients rely on: keys and types (any number is a number)."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def covers(ours: Any, theirs: Any) -> bool:
    """Tell whether our shape has everything that the recorded one has (null may be any type)."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return all(key in ours and covers(ours[key], each) for key, each in theirs.items())
    if isinstance(theirs, list) and isinstance(ours, list):
        return not ours or not theirs or covers(ours[0], theirs[0])
    return "NoneType" in (ours, theirs) or bool(ours == theirs)


@pytest.fixture
def graph(server: RunningServer) -> dict[str, Any]:
    """Return a graph that saves a blue picture."""
    replaced: dict[str, Any] = stand_in(IMAGE_GRAPH, server.folder("input"))
    return replaced


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[Client]:
    async with Client(server.url) as connected:
        yield connected


@pytest.mark.parametrize("path", GETS)
async def test_get_is_answered_like_the_original(client: Client, path: str) -> None:
    recorded = GETS[path]
    async with client.session.get(path) as answer:
        assert answer.status == recorded["status"]
        if recorded["status"] != 200:
            return
        assert answer.content_type == recorded["content_type"].split(";")[0]
        body = await answer.json()
    if path not in CHANGING:
        assert covers(shape(body), shape(recorded["body"])), (shape(body), shape(recorded["body"]))


@pytest.mark.parametrize("request_line", POSTS)
async def test_post_is_an_empty_200(client: Client, request_line: str) -> None:
    method, path, body = request_line.split(" ", 2)
    async with client.session.request(method, path, data=body) as answer:
        assert (answer.status, await answer.text()) == (200, "")


@pytest.mark.parametrize("name", PROMPTS)
async def test_submission_is_answered_like_the_original(
    client: Client, server: RunningServer, name: str
) -> None:
    recorded = PROMPTS[name]
    body = {"number": 1_000_000, **recorded["request"]}
    body["prompt"] = stand_in(body["prompt"], server.folder("input"))
    status, answer = await client.post("/prompt", body)
    assert status == recorded["status"], answer
    if status == 200:
        assert answer.keys() == {"prompt_id", "number", "node_errors"}
        await client.post("/queue", {"delete": [answer["prompt_id"]]})
        await client.post("/interrupt", {"prompt_id": answer["prompt_id"]})
    else:
        assert answer.keys() == {"error", "node_errors"}
        assert answer["error"].keys() == {"type", "message", "details", "extra_info"}
    expected = NEWER_ERRORS.get(name, error_types(recorded["node_errors"]))
    assert error_types(answer["node_errors"]) == expected


def error_types(node_errors: dict[str, Any]) -> dict[str, list[str]]:
    return {node: [error["type"] for error in entry["errors"]] for node, entry in node_errors.items()}


async def test_saved_picture_can_be_viewed_in_all_ways(client: Client, graph: dict[str, Any]) -> None:
    run = await client.run(graph)
    entry = run.images()[0]
    query = {key: entry[key] for key in ("filename", "subfolder", "type")}
    for more, kind in (
        ({}, "image/png"),
        ({"preview": "webp;80"}, "image/webp"),
        ({"preview": "jpeg"}, "image/jpeg"),
        ({"channel": "rgb"}, "image/png"),
        ({"channel": "a"}, "image/png"),
    ):
        async with client.session.get("/api/view", params=query | more) as answer:
            assert (answer.status, answer.content_type) == (200, kind)
            assert answer.headers["Content-Disposition"] == f'filename="{entry["filename"]}"'
            assert Image.open(io.BytesIO(await answer.read())).size == (16, 16)


async def test_finished_job_is_listed_and_detailed_for_the_page(client: Client, graph: dict[str, Any]) -> None:
    run = await client.run(graph)
    query = "status=completed,failed,cancelled&limit=64&offset=0"
    listed = (await client.get(f"/api/jobs?{query}"))["jobs"]
    job = next(each for each in listed if each["id"] == run.prompt_id)
    assert covers(shape(job), shape(GETS["/api/jobs"]["body"]["jobs"][0]))
    assert job["preview_output"]["filename"] == run.images()[0]["filename"]
    detail = await client.get(f"/api/jobs/{run.prompt_id}")
    assert detail["outputs"] == run.history["outputs"]
    assert detail["execution_status"] == run.history["status"]
    assert detail["workflow"]["prompt"] == graph


async def test_prompt_ids_are_canonical_or_refused(client: Client, graph: dict[str, Any]) -> None:
    status, answer = await client.post("/prompt", {"prompt": graph, "prompt_id": "my-prompt"})
    assert (status, answer["error"]["type"]) == (400, "invalid_prompt_id")


async def test_secrets_are_never_shown_again(client: Client, graph: dict[str, Any]) -> None:
    secrets = {"auth_token_comfy_org": "token-1", "api_key_comfy_org": "token-2"}
    run = await client.run(graph, extra_data=secrets)
    for path in ("/history", "/api/jobs", f"/api/jobs/{run.prompt_id}", "/queue"):
        async with client.session.get(path) as answer:
            assert "token-" not in await answer.text()


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b'{"prompt":' * 5_000, b"\xff\xfe", b"null", b"[]"])
async def test_hostile_bodies_are_refused_and_the_server_lives(client: Client, body: bytes) -> None:
    async with client.session.post("/prompt", data=body) as answer:
        assert answer.status == 400
        assert (await answer.json())["node_errors"] == {}
    assert await client.get("/prompt")


async def test_upload_is_a_choice_at_once(client: Client) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), "green").save(buffer, "PNG")
    form = aiohttp.FormData()
    form.add_field("image", buffer.getvalue(), filename="contract_upload.png")
    async with client.session.post("/upload/image", data=form) as answer:
        assert answer.status == 200
        name = (await answer.json())["name"]
    loading = {
        "1": {"class_type": "LoadImage", "inputs": {"image": name}},
        "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
    }
    run = await client.run(loading)
    shown = Image.open(io.BytesIO(await client.image(run.images()[0]))).convert("RGB")
    assert shown.getpixel((3, 3)) == (0, 128, 0)
    assert run.images()[0]["type"] == "temp"
