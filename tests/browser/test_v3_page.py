"""The page with nodes of a pack that have a schema: dynamic inputs are made, submitted and run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Window
from tests.support.server import RunningServer, ServerOptions

PACK = Path(__file__).parents[1] / "support" / "packs" / "v3"

BUILD = """() => {
  const graph = window.app.graph;
  const add = (type) => { graph.add(window.LiteGraph.createNode(type)); return graph.nodes.at(-1); };
  const named = (list, name) => list.findIndex((each) => each.name === name);
  const set = (node, name, value) => {
    const widget = node.widgets[named(node.widgets, name)];
    widget.value = value;
    widget.callback?.(value);
    return node;
  };
  const link = (from, slot, to, name) => from.connect(slot, to, named(to.inputs, name));
  graph.clear();
  const three = set(set(add("V3AsyncAdd"), "a", 1), "b", 2);
  const sum = add("V3AutogrowSum");
  for (const index of [0, 1, 2]) link(three, 0, sum, `numbers.number${index}`);
  const mode = set(set(add("V3ComboMode"), "mode", "on"), "mode.strength", 0.5);
  set(set(mode, "mode.kind", "y"), "mode.kind.depth", 3);
  const rows = add("V3Rows");
  set(rows, "rows", 2);
  set(set(rows, "rows.0.name", "first"), "rows.1.count", 7);
  link(rows, 0, add("V3Reports"), "value");
  link(sum, 0, add("V3Reports"), "value");
  link(mode, 0, add("V3Reports"), "value");
  window.slots = sum.inputs.map((each) => each.name);
}"""
PROMPT = "window.app.graphToPrompt().then((made) => made.output)"
RECORD = """() => {
  window.texts = [];
  window.app.api.addEventListener("executed", ({ detail }) =>
    window.texts.push(...(detail.output?.text ?? [])));
}"""


@pytest.fixture
def v3(tmp_path: Path) -> Any:
    """Return a server with the pack."""
    shutil.copytree(PACK, tmp_path / "custom_nodes" / "v3", ignore=shutil.ignore_patterns("__pycache__"))
    running = RunningServer.start(ServerOptions(tmp_path))
    yield running
    running.stop()


def test_inputs_that_the_page_makes_for_a_schema_are_those_that_the_node_gets(
    v3: RunningServer, window: Window
) -> None:
    window.open(v3.url)
    window.page.evaluate(BUILD)
    # One more slot than is connected: that is how the page lets an input grow.
    assert window.page.evaluate("window.slots") == [f"numbers.number{index}" for index in range(4)]
    submitted = {node["class_type"]: node["inputs"] for node in window.page.evaluate(PROMPT).values()}
    assert sorted(submitted["V3AutogrowSum"]) == [f"numbers.number{index}" for index in range(3)]
    expected = {"mode": "on", "mode.strength": 0.5, "mode.kind": "y", "mode.kind.depth": 3}
    assert submitted["V3ComboMode"] == expected
    rows = {"rows.0.name": "first", "rows.0.count": 1, "rows.1.name": "?", "rows.1.count": 7}
    assert submitted["V3Rows"] == rows

    window.page.evaluate(RECORD)
    window.page.get_by_test_id("queue-button").click()
    window.page.wait_for_function("window.texts.length === 3")
    texts = window.page.evaluate("window.texts")
    nested = {"mode": "on", "strength": 0.5, "kind": {"kind": "y", "depth": 3}}
    table = [{"name": "first", "count": 1}, {"name": "?", "count": 7}]
    told = [json.loads(text) for text in texts]
    assert all(each in told for each in (9, nested, table)), told
    window.screenshot("v3_page")
