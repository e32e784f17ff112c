"""The page's files are served as they are, unknown ones are real 404s, and every route has its twin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from comfyserverless.server.keys import WEB_FOLDERS
from comfyserverless.server.routes.page import own_web_folders

Client = TestClient[Any, Any]


async def test_index_is_html(client: Client) -> None:
    answer = await client.get("/")
    assert answer.content_type == "text/html"
    assert "<html" in await answer.text()


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/scripts/app.js", "text/javascript"), ("/materialdesignicons.min.css", "text/css")],
)
async def test_files_have_the_type_that_browsers_need(client: Client, path: str, kind: str) -> None:
    answer = await client.get(path)
    assert answer.content_type == kind
    again = await client.get(path, headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status == 304


@pytest.mark.parametrize(
    "path",
    [
        "/nope",
        "/nope.js",
        "/templates/no_such_template.json",
        "/docs/KSampler/en.md",
        "/extensions/nope/a.js",
        "/assets",
        "/api/nope",
        "/api/internal/logs",
        "/user.css",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2f..%2fetc%2fpasswd",
        "/extensions/comfyserverless/..%2f..%2fpyproject.toml",
        "/a%00b",
    ],
)
async def test_unknown_path_is_a_404_and_not_the_page(client: Client, path: str) -> None:
    answer = await client.get(path)
    assert answer.status == 404
    assert "<html" not in await answer.text()


async def test_extensions_are_listed_and_served(client: Client) -> None:
    urls = await (await client.get("/api/extensions")).json()
    assert any(url.startswith("/extensions/core/") for url in urls)
    assert "/extensions/comfyserverless/comfyserverless.js" in urls
    for url in urls:
        answer = await client.get(url)
        assert (answer.status, answer.content_type) == (200, "text/javascript"), url


async def test_own_extension_lies_where_its_imports_expect_it() -> None:
    folder = own_web_folders()["comfyserverless"]
    assert "../../scripts/app.js" in (folder / "comfyserverless.js").read_text()


async def test_pack_folder_names_are_quoted(client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "a.js").write_text("export {}")
    assert client.app is not None
    folders: dict[str, Path] = client.app[WEB_FOLDERS]  # type: ignore[assignment]
    folders["my pack"] = folder
    assert "/extensions/my%20pack/a.js" in await (await client.get("/extensions")).json()
    assert (await client.get("/extensions/my%20pack/a.js")).status == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/workflow_templates", {}),
        ("/global_subgraphs", {}),
        ("/global_subgraphs/x", None),
        ("/node_replacements", {}),
        ("/i18n", {}),
    ],
)
async def test_lists_of_packs_are_empty_with_and_without_prefix(client: Client, path: str, body: Any) -> None:
    assert await (await client.get(path)).json() == body
    assert await (await client.get("/api" + path)).json() == body
