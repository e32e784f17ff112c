"""Prove with a real browser that nodes say after a run what they cost."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Route, expect

from tests.browser.conftest import Window
from tests.support.server import RunningServer

BADGES = """() => Object.fromEntries(window.app.graph.nodes.map((node) => [
  node.type === "CLIPTextEncode" ? `CLIPTextEncode ${node.id}` : node.type,
  node.badges.map((badge) => (typeof badge === "function" ? badge() : badge).text).filter(Boolean).join(),
]))"""
COSTS = """async () => {
  const history = await (await window.app.api.fetchApi("/history")).json();
  const id = Object.keys(history).at(-1);
  const { nodes } = await (await window.app.api.fetchApi(`/usage/prompts/${id}`)).json();
  return Object.fromEntries(window.app.graph.nodes.map((node) => [
    node.type === "CLIPTextEncode" ? `CLIPTextEncode ${node.id}` : node.type, nodes[node.id],
  ]));
}"""
LEAST_LOAD_S = 0.05  # what a badge tells; how long loading takes depends on the machine
SAMPLER = f"({BADGES})().KSampler"
HAS_COST = rf"/^\d/.test({SAMPLER})"
#: All badges of a run are there at once, so these tell that the others are of the second run, too.
IS_CACHED = f"""Object.entries(({BADGES})())
  .filter(([name, text]) => name.startsWith("CLIP") && text === "cached").length === 2"""


def run(window: Window, is_shown: str) -> dict[str, str]:
    """Run the graph until its badges are there; returns those of all nodes by type."""
    window.page.get_by_test_id("queue-button").click()
    window.page.wait_for_function(is_shown)
    badges: dict[str, str] = window.page.evaluate(BADGES)
    return badges


def test_nodes_say_what_they_cost_and_what_was_cached(
    window: Window, start_server: Callable[..., RunningServer]
) -> None:
    window.open(start_server().url)
    page = window.page
    assert not any(page.evaluate(BADGES).values())
    first = run(window, HAS_COST)
    assert first["VAEDecode"]
    told = page.evaluate(COSTS)
    assert all(
        (told[name]["load_s"] >= LEAST_LOAD_S) == ("load" in text) for name, text in first.items() if text
    )
    window.screenshot("cost_badges")

    sampler = "window.app.graph.nodes.find((node) => node.type === 'KSampler')"
    page.evaluate(f"{sampler}.widgets.find((each) => each.name === 'steps').value = 7")
    second = run(window, IS_CACHED)
    assert second["KSampler"][0].isdigit(), "it ran again"
    window.screenshot("cost_badges_cached")

    page.evaluate("window.app.extensionManager.setting.set('comfyserverless.costBadges', false)")
    page.wait_for_function(f"{SAMPLER} === ''")
    page.evaluate("window.app.extensionManager.setting.set('comfyserverless.costBadges', true)")
    page.wait_for_function(f"{SAMPLER} !== ''")
    page.evaluate(f"window.app.graph.remove({sampler})")
    page.wait_for_timeout(300)  # the canvas draws what is left
    assert page.evaluate(BADGES)["VAEDecode"]


def test_nodes_that_are_elements_say_it_too(window: Window, start_server: Callable[..., RunningServer]) -> None:
    window.open(start_server().url)
    page = window.page
    page.evaluate("window.app.extensionManager.setting.set('Comfy.VueNodes.Enabled', true)")
    page.locator("[data-node-id]").first.wait_for()
    cost = run(window, HAS_COST)["KSampler"]
    expect(page.locator("[data-node-id]").filter(has_text="KSampler")).to_contain_text(cost)
    window.screenshot("cost_badges_elements")


def test_subgraph_says_what_its_inside_costs(
    window: Window, start_server: Callable[..., RunningServer]
) -> None:
    window.open(start_server().url)
    page = window.page
    page.evaluate("""() => {
      const inside = window.app.graph.nodes.filter((node) => ["KSampler", "VAEDecode"].includes(node.type));
      window.app.graph.convertToSubgraph(new Set(inside));
    }""")
    page.get_by_test_id("queue-button").click()
    texts = "(nodes) => nodes.flatMap((node) => node.badges.map((badge) => badge().text)).filter(Boolean)"
    outside = f"({texts})(window.app.graph.nodes.filter((node) => node.subgraph))"
    page.wait_for_function(f"{outside}.length === 1")
    inside = f"({texts})(window.app.graph.nodes.find((node) => node.subgraph).subgraph.nodes)"
    assert len(page.evaluate(inside)) == 2
    window.screenshot("cost_badges_subgraph")


def test_page_works_on_where_costs_cannot_be_read(
    window: Window, start_server: Callable[..., RunningServer]
) -> None:
    page = window.page
    aborted: list[str] = []

    def abort(route: Route) -> None:
        aborted.append(route.request.url)
        route.abort()

    page.route("**/api/usage/prompts/**", abort)
    window.open(start_server().url)
    page.get_by_test_id("queue-button").click()
    shown = "window.app.graph.nodes.find((node) => node.type === 'SaveImage').imgs?.length === 1"
    page.wait_for_function(shown)
    while not window.problems:  # until the browser has reported the request that was aborted
        page.wait_for_timeout(100)
    assert aborted
    assert not any(page.evaluate(BADGES).values())
    window.problems.clear()
