"""What packs and installed packages bring is served as plain files, and nothing outside of it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from yarl import URL

from comfyserverless.core.config import Folders
from comfyserverless.server.content import installed
from tests.support.fake_engine import FakeEngine

Client = TestClient[Any, Any]


def write(path: Path, content: str = "{}") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


@pytest.fixture(autouse=True)
def pack(folders: Folders) -> Path:
    """Make a pack, and folders beside it that are none."""
    root = folders.custom_nodes
    write(root / "Pack" / "example_workflows" / "first.json", '{"a": 1}')
    write(root / "Pack" / "example_workflows" / "first.jpg", "picture")
    write(root / "Pack" / "workflows" / "second.json")
    write(root / "Pack" / "subgraphs" / "blue print.json", '{"nodes": []}')
    write(root / "Pack" / "secret.json")
    for other in ("__pycache__", ".git", "Old.disabled"):
        write(root / other / "workflows" / "x.json")
    write(root / "single_file.py", "")
    return root / "Pack"


async def test_templates_of_packs_are_listed_and_served(client: Client) -> None:
    for path in ("/workflow_templates", "/api/workflow_templates"):
        assert await (await client.get(path)).json() == {"Pack": ["first", "second"]}
    graph = await client.get("/api/workflow_templates/Pack/first.json")
    assert (graph.content_type, await graph.json()) == ("application/json", {"a": 1})
    picture = await client.get("/api/workflow_templates/Pack/first.jpg")
    assert picture.content_type == "image/jpeg"


@pytest.mark.parametrize(
    "path",
    [
        "/workflow_templates/Pack/first.json",
        "/api/workflow_templates/Pack/secret.json",
        "/api/workflow_templates/Pack/..%2Fsecret.json",
        "/api/workflow_templates/Old.disabled/x.json",
        "/api/workflow_templates/..%2Fcustom_nodes%2FPack/first.json",
        "/templates/index.json",
        "/docs/KSampler/en.md",
        "/templates/..%2Fx",
    ],
)
async def test_all_else_is_a_404_without_a_page(
    client: Client, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comfyserverless.server.routes.library.template_folders", lambda: ())
    monkeypatch.setattr("comfyserverless.server.routes.library.docs_folder", lambda: None)
    answer = await client.get(URL(path, encoded=True))
    assert (answer.status, await answer.text()) == (404, "")


async def test_link_out_of_the_template_folder_is_not_followed(client: Client, pack: Path) -> None:
    (pack / "workflows" / "out.json").symlink_to(pack / "secret.json")
    assert (await client.get("/api/workflow_templates/Pack/out.json")).status == 404


async def test_blueprints_are_listed_without_their_graph_and_shown_with_it(client: Client) -> None:
    listed = await (await client.get("/api/global_subgraphs")).json()
    ((key, entry),) = listed.items()
    assert entry == {
        "source": "custom_node",
        "name": "blue print",
        "info": {"node_pack": "custom_nodes.Pack"},
    }
    shown = await (await client.get(f"/global_subgraphs/{key}")).json()
    assert shown == {**entry, "data": '{"nodes": []}'}
    assert await (await client.get("/global_subgraphs/nope")).json() is None


async def test_blueprint_keeps_its_id_wherever_the_server_lies(
    client: Client, folders: Folders, tmp_path: Path
) -> None:
    before = await (await client.get("/global_subgraphs")).json()
    folders.custom_nodes.rename(tmp_path / "elsewhere")
    folders.custom_nodes.symlink_to(tmp_path / "elsewhere")
    assert await (await client.get("/global_subgraphs")).json() == before


async def test_translations_of_packs_are_merged(client: Client, folders: Folders) -> None:
    root = folders.custom_nodes
    write(root / "Pack" / "locales" / "de" / "main.json", '{"menu": {"a": "A"}}')
    write(root / "Pack" / "locales" / "de" / "nodeDefs.json", '{"N": {"display_name": "Knoten"}}')
    write(root / "Other" / "locales" / "de" / "main.json", '{"menu": {"b": "B"}}')
    write(root / "Other" / "locales" / "fr" / "commands.json", '{"c": 1}')
    write(root / "Other" / "locales" / "es" / "settings.json", "broken")
    assert await (await client.get("/api/i18n")).json() == {
        "de": {"menu": {"a": "A", "b": "B"}, "nodeDefs": {"N": {"display_name": "Knoten"}}},
        "fr": {"commands": {"c": 1}},
    }


async def test_prompt_with_a_renamed_class_is_submitted_with_the_new_one(
    client: Client, engine: FakeEngine, pack: Path
) -> None:
    entry = {"new_node_id": "PreviewImage", "input_mapping": [{"new_id": "images", "old_id": "pictures"}]}
    write(pack / "node_replacements.json", json.dumps({"ShowPictures": [entry]}))
    shown = await (await client.get("/api/node_replacements")).json()
    assert shown["ShowPictures"][0]["old_node_id"] == "ShowPictures"
    prompt = {"1": {"class_type": "ShowPictures", "inputs": {"pictures": ["2", 0]}}}
    answer = await client.post("/prompt", json={"prompt": prompt})
    assert answer.status == 200
    assert engine.requests[0].prompt == {"1": {"class_type": "PreviewImage", "inputs": {"images": ["2", 0]}}}
    assert (await (await client.get("/features")).json())["node_replacements"] is True


async def test_class_that_a_pack_renamed_when_it_was_loaded_is_replaced_by_one_of_the_pack(
    client: Client, engine: FakeEngine
) -> None:
    engine.hosting.infos["OfPack"] = {}
    engine.hosting.replacements["Former"] = [{"new_node_id": "OfPack", "old_node_id": "Former"}]
    engine.hosting.replacements["OfPack"] = [{"new_node_id": "PreviewImage", "old_node_id": "OfPack"}]
    shown = await (await client.get("/node_replacements")).json()
    assert shown["Former"][0]["input_mapping"] == []
    prompt = {"1": {"class_type": "Former", "inputs": {}}, "2": {"class_type": "OfPack", "inputs": {}}}
    assert (await client.post("/prompt", json={"prompt": prompt})).status == 200
    assert [node["class_type"] for node in engine.requests[0].prompt.values()] == ["OfPack", "OfPack"]


async def test_without_packs_all_lists_are_empty(client: Client, folders: Folders) -> None:
    folders.custom_nodes.rename(folders.base / "gone")
    for path in ("/workflow_templates", "/global_subgraphs", "/node_replacements", "/i18n"):
        assert await (await client.get(path)).json() == {}


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install the optional packages, such as they are: folders of files."""
    write(tmp_path / "site" / "comfyui_workflow_templates_json" / "templates" / "index.json", "[]")
    write(tmp_path / "site" / "comfyui_workflow_templates_json" / "templates" / "flux.json")
    write(tmp_path / "site" / "comfyui_workflow_templates_media_image" / "templates" / "flux-1.webp", "p")
    write(tmp_path / "site" / "comfyui_embedded_docs" / "docs" / "KSampler" / "en.md", "# help")
    write(tmp_path / "site" / "comfyui_subgraph_blueprints" / "blueprints" / "core.json", '{"x": 1}')
    for name in ("comfyui_workflow_templates_json", "comfyui_embedded_docs", "comfyui_subgraph_blueprints"):
        write(tmp_path / "site" / name / "__init__.py", "raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    importlib.invalidate_caches()
    for name in [each for each in sys.modules if each.startswith("comfyui_")]:
        monkeypatch.delitem(sys.modules, name)  # other tests may have imported the real ones
    finders = (installed.template_folders, installed.docs_folder, installed.blueprints_folder)
    for finder in finders:
        finder.cache_clear()
    yield tmp_path / "site"
    for finder in finders:
        finder.cache_clear()


async def test_installed_packages_are_served_without_being_imported(client: Client, packages: Path) -> None:
    index = await client.get("/templates/index.json")
    assert (index.content_type, index.headers["Cache-Control"]) == ("application/json", "no-cache")
    assert (await client.get("/templates/flux.json")).status == 200
    assert (await client.get("/templates/flux-1.webp")).content_type == "image/webp"
    assert (await client.get("/templates/index.de.json")).status == 404
    assert (await client.get("/api/templates/index.json")).status == 404
    manual = await client.get("/docs/KSampler/en.md")
    assert (manual.content_type, await manual.text()) == ("text/markdown", "# help")
    listed = await (await client.get("/global_subgraphs")).json()
    assert {"source": "templates", "name": "core", "info": {"node_pack": "comfyui"}} in listed.values()
    assert not [name for name in sys.modules if name.startswith("comfyui_workflow_templates")]


async def test_assets_are_off_and_say_so(client: Client) -> None:
    requests = [("GET", ""), ("POST", ""), ("GET", "/seed/status"), ("HEAD", "/hash/blake3:0"), ("PUT", "/x")]
    for method, path in requests:
        answer = await client.request(method, f"/api/assets{path}")
        assert answer.status == 503
        if method != "HEAD":
            assert (await answer.json())["error"]["code"] == "SERVICE_DISABLED"
    assert (await client.get("/api/tags")).status == (await client.delete("/api/tasks/1")).status == 503
    assert (await client.get("/assets-of-nobody")).status == 404
    assert (await (await client.get("/features")).json())["assets"] is False
