"""Our conversion makes the prompt that *Run* in the page would send: the page itself is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route

from comfyserverless.graph.workflows.conversion import convert
from tests.browser.conftest import new_context
from tests.support.server import RunningServer
from tests.support.templates import (
    load_data,
    local_image_templates,
    node_types,
    same_order,
    template,
    template_classes,
)

#: Each asks for the prompt of one document; a page that fails after it has loaded a graph still answers.
ASK = """async (text) => {
  try { await window.app.loadGraphData(JSON.parse(text)); } catch (error) { console.warn(String(error)); }
  return JSON.stringify((await window.app.graphToPrompt()).output);
}"""
RULES_ASKED = 12


@pytest.fixture(scope="module")
def page(browser: Browser, server: RunningServer) -> Iterator[Page]:
    """Return a page of the real server that is told of all classes of the templates and of the rules."""
    classes = load_data("page_rules.json.gz")["object_info"] | template_classes()

    # A user who was here before is shown no templates to choose from, which are slow to draw.
    answers = {"object_info": json.dumps(classes), "settings": json.dumps({"Comfy.TutorialCompleted": True})}

    def answer(route: Route) -> None:
        route.fulfill(body=answers[route.request.url.rsplit("/", 1)[-1]], content_type="application/json")

    context = new_context(browser, 400, 300)
    opened = context.new_page()
    for name in answers:
        opened.route(f"**/api/{name}", answer)
    opened.goto(server.url)
    opened.wait_for_function("window.LiteGraph?.registered_node_types?.ComfySwitchNode !== undefined")
    opened.wait_for_function("window.app?.vueAppReady === true")
    # It has found a graph to begin with, and puts none in the place of ours any more.
    opened.wait_for_function("window.app.graph?.nodes.length > 0")
    yield opened
    context.close()


def chosen_templates() -> list[str]:
    """Choose every fifth template, and first those with rare kinds of nodes."""
    rare = {"PrimitiveNode", "Reroute", "CurveEditor", "StartLoop", "CustomCombo", "GLSLShader", "Painter"}
    names = local_image_templates()
    odd = [name for name in names if rare & set(node_types(template(name)))]
    return list(dict.fromkeys([*odd, *names[::5]]))


def test_templates_convert_to_what_the_page_would_send(page: Page) -> None:
    names = chosen_templates()
    assert len(names) >= 40
    differing = []
    for name in names:
        asked = json.loads(page.evaluate(ASK, json.dumps(template(name))))
        if same_order(convert(template(name), template_classes()).prompt) != same_order(asked):
            differing.append(name)
    assert differing == []


def test_recorded_answers_are_those_of_the_page(page: Page) -> None:
    told_otherwise = set(template_classes())
    rules = [
        rule
        for rule in load_data("page_rules.json.gz")["rules"]
        if told_otherwise.isdisjoint(node_types(rule["workflow"]))
    ]
    for rule in rules[:: len(rules) // RULES_ASKED]:
        asked = json.loads(page.evaluate(ASK, json.dumps(rule["workflow"])))
        assert asked == rule["prompt"], rule["name"]
