"""User files are addressed by one encoded segment, listed as the page expects, and never leave their folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from yarl import URL

from comfyserverless.core.config import Folders

Client = TestClient[Any, Any]
IN_MS = 10**12


def url(path: str) -> URL:
    """Keep encoded slashes as they are."""
    return URL(path, encoded=True)


@pytest.fixture
def home(folders: Folders) -> Path:
    """Return the default user's folder with two workflows in it."""
    home = folders.user / "default"
    (home / "workflows/sub").mkdir(parents=True)
    (home / "workflows/a.json").write_text("{}")
    (home / "workflows/sub/b.json").write_text("{}")
    (folders.user / "__system").mkdir()
    (folders.user / "__system/secret.json").write_text("secret")
    return home


async def test_file_is_stored_read_and_deleted(client: Client, folders: Folders) -> None:
    path = url("/api/userdata/workflows%2Fsub%2Fa%20b.json")
    stored = await client.post(path, data=b'{"x": 1}')
    assert (stored.status, await stored.json()) == (200, "workflows/sub/a b.json")
    assert (folders.user / "default/workflows/sub/a b.json").read_bytes() == b'{"x": 1}'
    assert await (await client.get(path)).read() == b'{"x": 1}'
    assert (await client.delete(path)).status == 204
    assert (await client.delete(path)).status == 404
    assert (await client.get(path)).status == 404


async def test_literal_slash_is_no_valid_form(client: Client, home: Path) -> None:
    assert (await client.get("/userdata/workflows/a.json")).status == 404
    assert (await client.get(url("/userdata/workflows%2Fa.json"))).status == 200


async def test_second_encoding_is_undone(client: Client, home: Path) -> None:
    assert (await client.get(url("/userdata/workflows%252Fa.json"))).status == 200


async def test_overwrite_false_keeps_the_old_file(client: Client, home: Path) -> None:
    path = "/userdata/workflows%2Fa.json"
    assert (await client.post(url(path + "?overwrite=false"), data=b"new")).status == 409
    assert (home / "workflows/a.json").read_text() == "{}"
    assert (await client.post(url(path + "?overwrite=0"), data=b"new")).status == 200
    assert (home / "workflows/a.json").read_text() == "new"


async def test_full_info_has_size_and_integer_milliseconds(client: Client) -> None:
    answer = await client.post(url("/userdata/a.json?full_info=true"), data=b"12345")
    info = await answer.json()
    assert (info["path"], info["size"]) == ("a.json", 5)
    assert all(isinstance(info[key], int) and info[key] > IN_MS for key in ("modified", "created"))


async def test_move_renames_and_makes_folders(client: Client, home: Path) -> None:
    answer = await client.post(url("/userdata/workflows%2Fa.json/move/old%2Fdeep%2Fa.json"))
    assert (answer.status, await answer.json()) == (200, "old/deep/a.json")
    assert (home / "old/deep/a.json").exists()
    assert (await client.post(url("/userdata/workflows%2Fa.json/move/x.json"))).status == 404
    again = url("/userdata/old%2Fdeep%2Fa.json/move/workflows%2Fsub%2Fb.json?overwrite=false")
    assert (await client.post(again)).status == 409


@pytest.mark.parametrize(
    ("query", "listed"),
    [
        ("dir=workflows", ["a.json"]),
        ("dir=workflows&recurse=true", ["a.json", "sub/b.json"]),
        ("dir=workflows&recurse=true&split=true", [["a.json", "a.json"], ["sub/b.json", "sub", "b.json"]]),
    ],
)
async def test_listing_is_relative_to_its_directory(
    client: Client, home: Path, query: str, listed: list[Any]
) -> None:
    assert await (await client.get(f"/userdata?{query}")).json() == listed


async def test_full_listing_has_sizes_and_milliseconds(client: Client, home: Path) -> None:
    answer = await client.get("/api/userdata?dir=workflows&recurse=true&split=false&full_info=true")
    first = (await answer.json())[0]
    assert first.keys() == {"path", "size", "modified", "created"}
    assert first["path"] == "a.json"
    assert isinstance(first["modified"], int)
    assert first["modified"] > IN_MS


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("dir=", 400),
        ("dir=nope", 404),
        ("dir=nope&full_info=true", 404),
        ("dir=..", 403),
        ("dir=/etc", 403),
        ("dir=../__system", 403),
    ],
)
async def test_bad_directories_are_refused(client: Client, home: Path, query: str, status: int) -> None:
    assert (await client.get(f"/userdata?{query}")).status == status


async def test_page_finds_no_workflows_without_an_error_in_its_console(client: Client) -> None:
    page_query = "recurse=true&split=false&full_info=true"
    assert await (await client.get(f"/api/userdata?dir=workflows&{page_query}")).json() == []
    assert (await client.get("/userdata?dir=workflows")).status == 404


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("..%2F__system%2Fsecret.json", 403),
        ("%2Fetc%2Fpasswd", 403),
        ("..%252F..%252Fsecret", 403),
        ("a%00b", 400),
        ("%20", 400),
        ("a" * 300, 404),
    ],
)
async def test_no_name_leaves_the_user_folder(client: Client, home: Path, name: str, status: int) -> None:
    answer = await client.get(url(f"/userdata/{name}"))
    assert answer.status == status
    assert b"secret" not in await answer.read()
    stored = await client.post(url(f"/userdata/{name}"), data=b"x")
    assert stored.status == (400 if status == 404 else status)


async def test_header_cannot_name_another_user(client: Client, home: Path) -> None:
    answer = await client.get(url("/userdata/secret.json"), headers={"Comfy-User": "__system"})
    assert answer.status == 404


async def test_name_that_is_a_directory_is_refused_with_a_reason(client: Client, home: Path) -> None:
    answer = await client.post(url("/userdata/workflows"), data=b"x")
    assert answer.status == 400
    assert "Invalid file name" in (answer.reason or "")


async def test_files_are_downloads_but_the_style_sheet_works(client: Client, home: Path) -> None:
    (home / "user.css").write_text("body {}")
    (home / "evil.html").write_text("<script>")
    style = await client.get("/api/userdata/user.css")
    assert style.content_type == "text/css"
    assert "Content-Disposition" not in style.headers
    evil = await client.get("/userdata/evil.html")
    assert evil.content_type == "application/octet-stream"
    assert evil.headers["Content-Disposition"].startswith("attachment")
    workflow = await client.get(url("/userdata/workflows%2Fa.json"))
    assert workflow.content_type == "application/json"
    assert workflow.headers["X-Content-Type-Options"] == "nosniff"


async def test_tree_lists_directories_first_and_paths_from_the_user_folder(client: Client, home: Path) -> None:
    entries = await (await client.get("/v2/userdata?path=workflows")).json()
    assert [(entry["type"], entry["path"]) for entry in entries] == [
        ("directory", "workflows/sub"),
        ("file", "workflows/a.json"),
        ("file", "workflows/sub/b.json"),
    ]
    assert "size" not in entries[0]
    assert entries[1]["size"] == 2


@pytest.mark.parametrize(("path", "status"), [("", 200), ("nope", 404), ("workflows/a.json", 400), ("..", 403)])
async def test_tree_refuses_what_is_no_directory(client: Client, home: Path, path: str, status: int) -> None:
    assert (await client.get("/v2/userdata", params={"path": path})).status == status


async def test_tree_of_a_new_user_is_empty(client: Client) -> None:
    answer = await client.get("/v2/userdata")
    assert json.loads(await answer.text()) == []


async def test_name_below_a_file_is_refused_and_not_called_a_conflict(client: Client, home: Path) -> None:
    for path in (
        "/userdata/workflows%2Fa.json%2Fb",
        "/userdata/workflows%2Fsub%2Fb.json/move/workflows%2Fa.json%2Fb",
        "/userdata/" + "x%2F" * 1500 + "b",
    ):
        for query in ("", "?overwrite=false"):
            assert (await client.post(url(path + query), data=b"x")).status == 400, path


async def test_move_without_overwrite_keeps_the_old_file(client: Client, home: Path) -> None:
    path = "/userdata/workflows%2Fa.json/move/workflows%2Fsub%2Fb.json"
    (home / "workflows/a.json").write_text("new")
    assert (await client.post(url(path + "?overwrite=false"))).status == 409
    assert (home / "workflows/a.json").read_text() == "new"
    assert (home / "workflows/sub/b.json").read_text() == "{}"
    assert (await client.post(url(path))).status == 200
    assert (home / "workflows/sub/b.json").read_text() == "new"


async def test_file_that_vanishes_meanwhile_is_a_404(
    client: Client, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comfyserverless.server.routes.userdata.is_file", lambda path: True)
    assert (await client.delete(url("/userdata/gone.json"))).status == 404
    for query in ("", "?overwrite=false"):
        assert (await client.post(url(f"/userdata/gone.json/move/b.json{query}"))).status == 404
