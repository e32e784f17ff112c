"""What packs bring to the page: scripts, node classes, and a look at every prompt."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import TestClient

from comfyserverless.control.hosting.host import HostDown
from comfyserverless.core.hosting import Catalog, NodeInfo
from comfyserverless.server.hosting import packs
from tests.support.fake_engine import FakeEngine

Client = TestClient[Any, Any]


@pytest.fixture
def folder(engine: FakeEngine, tmp_path: Path) -> Path:
    """Return the web folder of a pack that is loaded."""
    web = tmp_path / "pack" / "web"
    (web / "js").mkdir(parents=True)
    (web / "main.js").write_text("export {}")
    (web / "js" / "a b#.js").write_text("export {}")
    (web / "style.css").write_text("a {}")
    (web / "page.html").write_text("<p>")
    (tmp_path / "secret.js").write_text("secret")
    (web / "link.js").symlink_to(tmp_path / "secret.js")
    engine.hosting.host.catalog = Catalog((), {}, web_folders={"Pack Ü": str(web)})
    return web


async def test_every_script_is_listed_and_served_as_one(client: Client, folder: Path) -> None:
    urls = await (await client.get("/extensions")).json()
    mine = [url for url in urls if "Pack" in url]
    assert mine == ["/extensions/Pack%20%C3%9C/js/a%20b%23.js", "/extensions/Pack%20%C3%9C/main.js"]
    assert any(url.startswith("/extensions/core/") for url in urls)
    from yarl import URL

    for url in mine:
        answer = await client.get(URL(url, encoded=True))
        assert (answer.status, answer.content_type) == (200, "text/javascript")
        assert answer.headers["Cache-Control"] == "no-cache"


async def test_other_files_are_served_and_nothing_outside(client: Client, folder: Path) -> None:
    from yarl import URL

    base = "/extensions/Pack%20%C3%9C/"
    for name, kind in (("style.css", "text/css"), ("page.html", "text/html")):
        answer = await client.get(URL(base + name, encoded=True))
        assert (answer.status, answer.content_type) == (200, kind)
    for name in ("link.js", "..%2F..%2Fsecret.js", "../../secret.js", "js", "nothing.js"):
        assert (await client.get(URL(base + name, encoded=True))).status == 404
    assert (await client.get("/extensions/Other/main.js")).status == 404


async def test_our_own_extension_cannot_be_replaced(client: Client, engine: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "main.js").write_text("evil")
    folders = {"comfyserverless": str(tmp_path / "evil"), "core": str(tmp_path / "evil")}
    engine.hosting.host.catalog = Catalog((), {}, web_folders=folders)
    urls = await (await client.get("/extensions")).json()
    assert "/extensions/comfyserverless/main.js" not in [u for u in urls if "evil" in u]
    answer = await client.get("/extensions/comfyserverless/main.js")
    assert b"evil" not in await answer.read()


async def test_node_classes_are_shown_beside_ours_which_win(client: Client, engine: FakeEngine) -> None:
    whole = {"name": "Mine", "python_module": "custom_nodes.p", "input": {"required": {}}}
    engine.hosting.infos = {
        "Mine": whole,
        "KSampler": {**whole, "name": "KSampler"},
        "Broken": {"name": "Broken", "python_module": None},
    }
    infos = await (await client.get("/object_info")).json()
    assert infos["Mine"] == whole
    assert infos["KSampler"]["python_module"] == "nodes"
    assert "Broken" not in infos
    assert await (await client.get("/object_info/Mine")).json() == {"Mine": whole}
    assert (await (await client.get("/object_info/KSampler")).json())["KSampler"]["python_module"] == "nodes"
    assert await (await client.get("/object_info/Nothing")).json() == {}


async def test_handlers_see_and_change_every_prompt_before_it_is_validated(
    client: Client, engine: FakeEngine
) -> None:
    asked: list[Any] = []

    def handle(question: Any) -> Any:
        body = json.loads(question["body"])
        asked.append((body["client_id"], question["about"]["tenant"]))
        body["prompt"] = {"2": {"class_type": "Other", "inputs": {}}}
        body["front"] = True
        return {"body": json.dumps(body)}

    engine.hosting.host.catalog = Catalog((), {}, has_prompt_handlers=True)
    engine.hosting.host.answers["prompt"] = handle
    answer = await client.post("/prompt", json={"prompt": {"1": {}}, "client_id": "c"})
    assert answer.status == 200
    assert asked == [("c", "default")]
    assert engine.requests[0].prompt == {"2": {"class_type": "Other", "inputs": {}}}
    assert engine.requests[0].front


@pytest.mark.parametrize("failure", [HostDown("gone"), ValueError("broken"), None], ids=str)
async def test_handlers_that_cannot_answer_change_nothing(
    client: Client, engine: FakeEngine, failure: Exception | None
) -> None:
    def handle(question: Any) -> Any:
        if failure is not None:
            raise failure
        return {"body": "[]"}

    engine.hosting.host.catalog = Catalog((), {}, has_prompt_handlers=True)
    engine.hosting.host.answers["prompt"] = handle
    assert (await client.post("/prompt", json={"prompt": {"1": {}}})).status == 200
    assert engine.requests[0].prompt == {"1": {}}


async def test_nobody_is_asked_without_handlers(client: Client, engine: FakeEngine) -> None:
    engine.hosting.host.catalog = Catalog((), {})
    assert (await client.post("/prompt", json={"prompt": {"1": {}}})).status == 200


async def test_page_does_not_wait_for_a_host_that_does_not_come_back(
    client: Client, engine: FakeEngine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*about: Any) -> Any:
        await asyncio.sleep(60)

    async def not_yet(within_s: float) -> None:
        asked.append(within_s)

    asked: list[float] = []
    info = {"name": "Mine", "python_module": "custom_nodes.p"}
    known = engine.hosting.catalog
    assert known is not None
    classes = {"Mine": NodeInfo("Mine", (), (), {}, info)}
    engine.hosting.catalog = msgspec.structs.replace(known, classes=classes)
    monkeypatch.setattr(packs, "AGAIN_WITHIN_S", 0.01)
    monkeypatch.setattr(type(engine.hosting), "object_info", never)
    monkeypatch.setattr(type(engine.hosting), "loaded_soon", lambda self, within_s: not_yet(within_s))
    assert (await (await client.get("/object_info")).json())["Mine"] == info
    assert any("Pack" in url for url in await (await client.get("/extensions")).json())
    assert asked == [0.01]
