"""Every route that the page, API clients and packs know is there, with its prefixes, methods and headers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from tests.support.client import Client
from tests.support.server import PATIENCE_S, RunningServer
from tests.support.tenants import routes_with_accounts

#: Routes with an /api twin: what to ask, and what comes back (a JSON type, or a content type).
BOTH: dict[str, Any] = {
    "/users": dict,
    "/system_stats": dict,
    "/features": dict,
    "/settings": dict,
    "/settings/Comfy.Unknown": type(None),
    "/extensions": list,
    "/object_info": dict,
    "/object_info/KSampler": dict,
    "/object_info/Unknown": dict,
    "/i18n": dict,
    "/embeddings": list,
    "/models": list,
    "/models/checkpoints": list,
    "/experiment/models": list,
    "/experiment/models/checkpoints": list,
    "/userdata?dir=workflows&recurse=true&split=false&full_info=true": list,
    "/v2/userdata": list,
    "/workflow_templates": dict,
    "/global_subgraphs": dict,
    "/global_subgraphs/unknown": type(None),
    "/node_replacements": dict,
    "/prompt": dict,
    "/queue": dict,
    "/history": dict,
    "/history/unknown": dict,
}
API_ONLY: dict[str, Any] = {
    "/jobs": dict,
    "/jobs?status=in_progress,pending&limit=200&offset=0": dict,
    "/jobs?status=completed,failed,cancelled&limit=64&offset=0": dict,
}
PLAIN_ONLY: dict[str, Any] = {
    "/": "text/html",
    "/scripts/app.js": "text/javascript",
    "/scripts/api.js": "text/javascript",
    "/scripts/ui.js": "text/javascript",
    "/materialdesignicons.min.css": "text/css",
    "/internal/logs": str,
    "/internal/logs/raw": dict,
    "/internal/folder_paths": dict,
    "/internal/files/output": list,
    "/internal/files/input": list,
    "/internal/files/temp": list,
}
MISSING = {
    "/jobs": 404,
    "/api/internal/logs": 404,
    "/api/scripts/app.js": 404,
    "/models/unet": 404,
    "/models/clip": 404,
    "/view": 404,
    "/view?filename=missing.png": 404,
    "/view?filename=../x": 400,
    "/view?filename=x&subfolder=../..": 403,
    "/view?filename=x&type=unknown": 400,
    "/view_metadata/checkpoints?filename=missing.safetensors": 404,
    "/experiment/models/unknown": 404,
    "/experiment/models/preview/checkpoints/0/missing.webp": 404,
    "/userdata": 400,
    "/userdata?dir=missing": 404,
    "/userdata?dir=../..": 403,
    "/userdata/missing.json": 404,
    "/v2/userdata?path=missing": 404,
    "/api/jobs/unknown": 404,
    "/api/jobs/unknown/assets": 404,
    "/api/jobs?status=unknown": 400,
    "/api/jobs?limit=0": 400,
    "/internal/files/unknown": 400,
    "/templates/index.xx.json": 404,
    "/docs/Unknown/en.md": 404,
    "/extensions/unknown/x.js": 404,
    "/user.css": 404,
    "/missing.js": 404,
    "/hub/workflows": 404,
    "/api/assets": 503,
    "/api/assets/tags/refine": 503,
    "/api/tags": 503,
}
#: Method, path, body -> status and whether there is a body.
CHANGES = [
    ("POST", "/settings", '{"Comfy.A": 1}', 200, False),
    ("POST", "/settings/Comfy.A%2FB", "true", 200, False),
    ("POST", "/queue", '{"clear": true}', 200, False),
    ("POST", "/queue", '{"delete": ["unknown"]}', 200, False),
    ("POST", "/history", '{"delete": ["unknown"]}', 200, False),
    ("POST", "/interrupt", "", 200, False),
    ("POST", "/interrupt", '{"prompt_id": "unknown"}', 200, False),
    ("POST", "/free", "", 200, False),
    ("POST", "/users", '{"username": "x"}', 400, True),
    ("POST", "/prompt", "{}", 400, True),
    ("POST", "/upload/image", "", 400, True),
    ("POST", "/upload/mask", "", 400, True),
]


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[Client]:
    async with Client(server.url) as connected:
        yield connected


async def check(client: Client, path: str, expected: Any) -> None:
    async with client.session.get(path) as answer:
        assert answer.status == 200, path
        if isinstance(expected, str):
            assert answer.content_type == expected
        else:
            assert answer.content_type == "application/json"
            assert isinstance(json.loads(await answer.text()), expected)
    async with client.session.head(path) as answer:
        assert (answer.status, await answer.read()) == (200, b"")


@pytest.mark.parametrize("path", BOTH)
async def test_route_and_its_twin_answer(client: Client, path: str) -> None:
    for prefix in ("", "/api"):
        await check(client, prefix + path, BOTH[path])


@pytest.mark.parametrize("path", [*(f"/api{path}" for path in API_ONLY), *PLAIN_ONLY])
async def test_route_without_a_twin_answers(client: Client, path: str) -> None:
    await check(client, path, {**{f"/api{key}": kind for key, kind in API_ONLY.items()}, **PLAIN_ONLY}[path])


@pytest.mark.parametrize("path", MISSING)
async def test_what_is_missing_or_wrong_is_never_answered_with_the_page(client: Client, path: str) -> None:
    async with client.session.get(URL(path, encoded=True)) as answer:
        assert answer.status == MISSING[path]
        assert answer.content_type != "text/html"


@pytest.mark.parametrize(("method", "path", "body", "status", "has_body"), CHANGES)
@pytest.mark.parametrize("prefix", ["", "/api"])
@pytest.mark.parametrize("content_type", ["application/json", "text/plain", None])
async def test_change_is_taken_whatever_its_content_type(
    client: Client,
    method: str,
    path: str,
    body: str,
    status: int,
    has_body: bool,
    prefix: str,
    content_type: str | None,
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    skipped = ["Content-Type"] if content_type is None else []
    url = URL(prefix + path, encoded=True)
    async with client.session.request(
        method, url, data=body.encode(), headers=headers, skip_auto_headers=skipped
    ) as answer:
        content = await answer.read()
        assert (answer.status, bool(content)) == (status, has_body), content


async def test_user_files_are_kept_moved_and_removed_by_encoded_paths(client: Client) -> None:
    session = client.session

    async def ask(method: str, path: str, data: bytes | None = None) -> tuple[int, Any]:
        async with session.request(method, URL(f"/api/userdata/{path}", encoded=True), data=data) as answer:
            text = await answer.text()
            is_json = answer.content_type == "application/json"
            return answer.status, json.loads(text) if is_json and text else text

    name, target = "presets%2Froutes%20test%2Fa.json", "presets%2Froutes%20test%2Fb%C3%A4r.json"
    status, info = await ask("POST", f"{name}?full_info=true", b"{}")
    assert (status, info["path"], info["size"]) == (200, "presets/routes test/a.json", 2)
    assert isinstance(info["modified"], int)
    assert await ask("POST", f"{name}?overwrite=false", b"[]") == (409, "File already exists")
    assert await ask("POST", target, b"old") == (200, "presets/routes test/bär.json")
    assert (await ask("POST", f"{name}/move/{target}?overwrite=false"))[0] == 409
    assert await ask("POST", f"{name}/move/{target}?overwrite=true") == (200, "presets/routes test/bär.json")
    assert (await ask("GET", name))[0] == 404
    assert await ask("GET", target) == (200, {})
    assert (await ask("GET", "presets/routes%20test/b%C3%A4r.json"))[0] == 404
    entries = await client.get("/v2/userdata?path=presets/routes%20test")
    assert [(entry["path"], entry["type"]) for entry in entries] == [("presets/routes test/bär.json", "file")]
    assert (await ask("DELETE", target))[0] == 204
    assert (await ask("DELETE", target))[0] == 404
    assert (await ask("POST", f"{name}/move/{target}"))[0] == 404


async def test_console_lines_reach_the_socket_that_asks_for_them(client: Client) -> None:
    wish = {"clientId": client.client_id, "enabled": True}
    async with client.session.patch("/internal/logs/subscribe", json=wish) as answer:
        assert answer.status == 200
    image = {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 1}}
    prompt_id = await client.submit(
        {"1": image, "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}}}
    )
    async with asyncio.timeout(PATIENCE_S):
        async for message in client.socket:
            body = json.loads(message.data) if message.type is aiohttp.WSMsgType.TEXT else {}
            if body.get("type") == "logs" and any(prompt_id in each["m"] for each in body["data"]["entries"]):
                break
    assert prompt_id in await client.get("/internal/logs")
    lines = (await client.get("/internal/logs/raw"))["entries"]
    assert any(prompt_id in line["m"] for line in lines)


async def test_files_have_ranges_validators_and_the_right_caching(
    client: Client, server: RunningServer
) -> None:
    content = bytes(range(256)) * 8
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("image", content, filename="range test.mp4")
    async with client.session.post("/upload/image", data=form) as answer:
        assert (await answer.json()) == {"name": "range test.mp4", "subfolder": "", "type": "input"}
    path = "/api/view?filename=range%20test.mp4&type=input"
    async with client.session.get(path) as answer:
        assert answer.content_type == "video/mp4"
        assert answer.headers["Accept-Ranges"] == "bytes"
        validators = {"If-None-Match": answer.headers["ETag"]}
        assert "Last-Modified" in answer.headers
    cases = {"bytes=0-9": content[:10], "bytes=100-": content[100:], "bytes=-5": content[-5:]}
    for wish, part in cases.items():
        async with client.session.get(path, headers={"Range": wish}) as answer:
            assert (answer.status, await answer.read()) == (206, part)
            assert answer.headers["Content-Range"].endswith(f"/{len(content)}")
    async with client.session.get(path, headers={"Range": "bytes=99999-"}) as answer:
        assert answer.status == 416
    async with client.session.get(path, headers=validators) as answer:
        assert answer.status == 304
    caching = {"/": "no-store", "/scripts/app.js": "no-cache", "/materialdesignicons.min.css": "no-cache"}
    for page, word in caching.items():
        async with client.session.get(page) as answer:
            assert word in answer.headers["Cache-Control"]


async def test_any_request_may_be_asked_for_its_options(client: Client) -> None:
    for path in ("/prompt", "/api/jobs", "/internal/logs", "/unknown"):
        async with client.session.options(path) as answer:
            assert answer.status == 200


def test_every_twin_is_a_twin(tmp_path: Path) -> None:
    routes = routes_with_accounts(tmp_path)
    plain = {(method, path) for method, path in routes if not path.startswith("/api/")}
    twins = {(method, path.removeprefix("/api")) for method, path in routes if path.startswith("/api/")}
    alone = {
        (method, path)
        for method, path in twins - plain
        if not path.startswith(("/jobs", "/assets", "/tags", "/tasks", "/workflow_templates/", "/usage"))
    }
    assert not alone
