"""Build a graph of primitives, a formula and a switch in the page, run it there, and read what it shows."""

from __future__ import annotations

from collections.abc import Callable

from tests.browser.conftest import Window
from tests.support.server import RunningServer

BUILD = """() => {
  const add = (type) => window.app.graph.add(window.LiteGraph.createNode(type)) ?? last();
  const last = () => window.app.graph.nodes.at(-1);
  const named = (list, name) => list.findIndex((each) => each.name === name);
  const set = (node, name, value) => {
    node.widgets[named(node.widgets, name)].value = value;
    return node;
  };
  const link = (from, slot, to, name) => from.connect(slot, to, named(to.inputs, name));
  window.app.graph.clear();
  const width = set(add("PrimitiveInt"), "value", 7);
  set(width, "control_after_generate", "fixed");
  const formula = set(add("ComfyMathExpression"), "expression", "a * 6 > 40");
  const yes = set(add("PrimitiveString"), "value", "large");
  const no = set(add("PrimitiveString"), "value", "small");
  const chooser = add("ComfySwitchNode");
  const shown = add("PreviewAny");
  link(width, 0, formula, "values.a");
  link(formula, 2, chooser, "switch");
  link(yes, 0, chooser, "on_true");
  link(no, 0, chooser, "on_false");
  link(chooser, 0, shown, "source");
  window.shown = shown;
}"""
SHOWN = "window.shown.widgets.find((each) => each.name === 'preview_text').value"


def test_graph_of_utility_nodes_runs_and_shows_its_text(
    window: Window, start_server: Callable[..., RunningServer]
) -> None:
    window.open(start_server().url)
    window.page.evaluate(BUILD)
    window.page.get_by_test_id("queue-button").click()
    window.page.wait_for_function(f"{SHOWN} === 'large'")
    window.page.evaluate("window.app.graph.nodes[0].widgets[0].value = 6")
    window.page.get_by_test_id("queue-button").click()
    window.page.wait_for_function(f"{SHOWN} === 'small'")
    window.screenshot("utility_nodes")


def test_every_utility_node_has_its_widgets(window: Window, start_server: Callable[..., RunningServer]) -> None:
    window.open(start_server().url)
    made = window.page.evaluate(
        """() => {
          const of = (type) => {
            const node = window.LiteGraph.createNode(type);
            window.app.graph.add(node);
            return [node.inputs.map((each) => each.name), (node.widgets ?? []).map((each) => each.name)];
          };
          return Object.fromEntries(["ResizeImageMaskNode", "BatchImagesNode", "StartLoop", "CustomCombo",
            "SaveImageAdvanced", "ResolutionSelector"].map((type) => [type, of(type)]));
        }"""
    )
    inputs = {name: set(found[0]) for name, found in made.items()}
    widgets = {name: found[1] for name, found in made.items()}
    assert {"images.image0", "images.image1"} <= inputs["BatchImagesNode"]
    assert {"parent_iteration", "initial_iteration_value"} <= inputs["StartLoop"]
    assert widgets["StartLoop"] == ["mode", "mode.num_iterations", "cache_iterations"]
    assert widgets["ResizeImageMaskNode"] == ["resize_type", "resize_type.multiplier", "scale_method"]
    assert widgets["CustomCombo"] == ["choice", "index", "option1"]
    assert widgets["SaveImageAdvanced"] == [
        "filename_prefix",
        "format",
        "format.bit_depth",
        "format.input_color_space",
    ]
    assert widgets["ResolutionSelector"] == ["aspect_ratio", "megapixels", "multiple", "preview"]
