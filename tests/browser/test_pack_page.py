"""The page with a pack: its script runs, its nodes are there, and its messages arrive."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Window
from tests.support.server import RunningServer, ServerOptions

PACK = Path(__file__).parents[1] / "support" / "packs" / "web_nodes"
GRAPH = {"1": {"class_type": "WebNodesTell", "inputs": {"text": "replace me", "to_client": True}}}


@pytest.fixture
def packs(tmp_path: Path, start_server: Any) -> Any:
    """Return a server with the pack."""
    shutil.copytree(PACK, tmp_path / "custom_nodes" / "web_nodes", ignore=shutil.ignore_patterns("__pycache__"))
    running = RunningServer.start(ServerOptions(tmp_path))
    yield running
    running.stop()


def test_script_of_a_pack_talks_to_its_routes_and_hears_its_nodes(packs: RunningServer, window: Window) -> None:
    window.open(packs.url)
    window.page.wait_for_function("window.webNodes?.greeting")
    assert window.page.evaluate("window.webNodes.greeting") == {"hello": "page", "query": {}}

    window.page.evaluate("(graph) => window.app.loadApiJson(graph, 'packs')", GRAPH)
    node = "window.app.graph.nodes.find((node) => node.type === 'WebNodesTell')"
    assert window.page.evaluate(f"{node}.color") == "#223344"
    assert window.page.evaluate(f"{node}.title") == "Tell the page"
    expect(window.page.get_by_test_id("queue-button")).to_be_visible()
    window.page.get_by_test_id("queue-button").click()
    window.page.wait_for_function("window.webNodes.told.length > 0")
    assert window.page.evaluate("window.webNodes.told") == ["REPLACED"]
    window.screenshot("pack_page")
