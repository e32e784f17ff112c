"""Settings are kept per user, and no writer loses another's keys."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from yarl import URL

from comfyserverless.core.config import Folders
from tests.unit.server.conftest import StartClient

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


async def test_people_of_a_multi_user_server_have_their_own_settings_and_files(
    start_client: StartClient, folders: Folders
) -> None:
    client = await start_client(has_users=True)
    assert await (await client.get("/users")).json() == {"storage": "server", "users": {}}
    ids = {}
    for name in ("Ann", " Bob ./"):
        answer = await client.post("/api/users", json={"username": name})
        assert answer.status == 200
        ids[name.strip()] = await answer.json()
    assert await (await client.get("/api/users")).json() == {
        "storage": "server",
        "users": {user: name for name, user in ids.items()},
    }
    assert ids["Bob ./"].startswith("Bob_")
    ann, bob = ({"Comfy-User": user} for user in ids.values())
    await client.post("/settings/x", json=1, headers=ann)
    await client.post(URL("/userdata/workflows%2Fa.json", encoded=True), data=b"ann", headers=ann)
    assert await (await client.get("/settings", headers=bob)).json() == {}
    assert await (await client.get("/settings", headers=ann)).json() == {"x": 1}
    path = URL("/userdata/workflows%2Fa.json", encoded=True)
    assert (await client.get(path, headers=bob)).status == 404
    assert (await client.get(path, headers=ann)).status == 200
    assert (folders.user / ids["Ann"] / "workflows" / "a.json").read_bytes() == b"ann"


@pytest.mark.parametrize("user", ["", "nobody", "__webhooks", "..", "users.json"])
async def test_unknown_user_of_a_multi_user_server_is_asked_who_it_is(
    start_client: StartClient, folders: Folders, user: str
) -> None:
    folders.user.mkdir()
    (folders.user / "users.json").write_text('{"__webhooks": "x"}')
    client = await start_client(has_users=True)
    for path in ("/settings", "/userdata?dir=workflows"):
        assert (await client.get(path, headers={"Comfy-User": user})).status == 401


@pytest.mark.parametrize("name", ["", "  ", "__system", "Ann", "x" * 65, 3, None])
async def test_bad_and_taken_user_names_are_refused(start_client: StartClient, name: Any) -> None:
    client = await start_client(has_users=True)
    assert (await client.post("/users", json={"username": "Ann"})).status == 200
    answer = await client.post("/users", json={"username": name})
    assert (answer.status, list(await answer.json())) == (400, ["error"])


async def test_single_user_server_ignores_the_header_and_adds_nobody(client: Client) -> None:
    await client.post("/settings", json={"a": 1})
    assert await (await client.get("/settings", headers={"Comfy-User": "other"})).json() == {"a": 1}
    assert (await client.post("/users", json={"username": "Ann"})).status == 400
