"""Settings are kept per user, and no writer loses another's keys."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp.test_utils import TestClient
from yarl import URL

from comfyserverless.core.config import Folders

Client = TestClient[Any, Any]


async def test_settings_are_merged_and_read_back(client: Client) -> None:
    assert await (await client.get("/settings")).json() == {}
    answer = await client.post("/api/settings", json={"a": 1, "b": {"c": [2]}})
    assert (answer.status, await answer.text()) == (200, "")
    await client.post("/settings", json={"a": 3})
    assert await (await client.get("/api/settings")).json() == {"a": 3, "b": {"c": [2]}}


async def test_single_setting_takes_any_json_of_any_content_type(client: Client) -> None:
    for body, value in ((b'"x"', "x"), (b"null", None), (b"false", False), (b"[1]", [1])):
        answer = await client.post(
            "/settings/Comfy.Some%2FThing", data=body, headers={"Content-Type": "text/plain"}
        )
        assert answer.status == 200
        assert await (await client.get("/settings/Comfy.Some%2FThing")).json() == value


async def test_unknown_setting_is_null(client: Client) -> None:
    answer = await client.get("/settings/nope")
    assert (answer.status, await answer.json()) == (200, None)


async def test_concurrent_writers_lose_no_keys(client: Client) -> None:
    await asyncio.gather(*(client.post(f"/settings/key{index}", json=index) for index in range(20)))
    stored = await (await client.get("/settings")).json()
    assert stored == {f"key{index}": index for index in range(20)}


async def test_broken_file_is_set_aside(client: Client, folders: Folders) -> None:
    home = folders.user / "default"
    home.mkdir(parents=True)
    (home / "comfy.settings.json").write_text("{broken")
    assert await (await client.get("/settings")).json() == {}
    assert (await client.post("/settings/a", json=1)).status == 200
    assert (home / "comfy.settings.json.broken").read_text() == "{broken"


async def test_folder_in_place_of_the_file_is_set_aside_without_touching_what_was_before(
    client: Client, folders: Folders
) -> None:
    home = folders.user / "default"
    home.mkdir(parents=True)
    (home / "comfy.settings.json.broken").write_text("{older")
    path = URL("/userdata/comfy.settings.json%2Fa", encoded=True)
    assert (await client.post(path, data=b"x")).status == 200
    assert await (await client.get("/settings")).json() == {}
    assert (await client.post("/settings/a", json=1)).status == 200
    assert (home / "comfy.settings.json.broken").read_text() == "{older"
    assert (home / "comfy.settings.json.broken-1" / "a").read_bytes() == b"x"


async def test_malformed_bodies_are_refused(client: Client) -> None:
    assert (await client.post("/settings", data=b"[]")).status == 400
    assert (await client.post("/settings/a", data=b"{")).status == 400


async def test_single_user_server_has_no_user_list(client: Client) -> None:
    assert await (await client.get("/api/users")).json() == {"storage": "server", "migrated": False}
    await client.post("/settings/a", json=1)
    assert (await (await client.get("/users")).json())["migrated"] is True
    assert (await client.post("/users", json={"username": "eve"})).status == 400
