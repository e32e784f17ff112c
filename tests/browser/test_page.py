"""Prove with a real browser that a new user opens the page, presses Run and sees a picture."""

from __future__ import annotations

import io
import urllib.request
from collections.abc import Callable
from typing import Any

from PIL import Image
from playwright.sync_api import expect

from tests.browser.conftest import Window
from tests.support.server import RunningServer

FIRST_GRAPH = [
    "CLIPTextEncode",
    "CLIPTextEncode",
    "CheckpointLoaderSimple",
    "EmptyLatentImage",
    "KSampler",
    "SaveImage",
    "VAEDecode",
]
NODE = "window.app.graph.nodes.find((node) => node.type === '{type}')"
#: The page saves a draft half a second after a change, in the storage of the tab or of the site.
DRAFT_IS_SAVED = """(text) => [localStorage, sessionStorage].some((storage) =>
  Object.values({ ...storage }).some((each) => each.includes(text)))"""
RECORD_PROGRESS = """() => {
  window.seenProgress = [];
  window.app.api.addEventListener("progress", ({ detail }) =>
    window.seenProgress.push([String(detail.node), detail.value, detail.max]));
  window.seenPreviews = [];
  window.app.api.addEventListener("b_preview_with_metadata", ({ detail }) =>
    setTimeout(() => window.seenPreviews.push([
      String(detail.displayNodeId), detail.blob.type, Object.keys(window.app.nodePreviewImages)])));
}"""


def node_types(window: Window) -> list[str]:
    """List the types of the nodes on the canvas."""
    types: list[str] = window.page.evaluate("window.app.graph.nodes.map((node) => node.type)")
    return sorted(types)


def widget(window: Window, node: str, name: str) -> Any:
    """Return the value of a widget of the first node of a type."""
    return window.page.evaluate(
        f"{NODE.format(type=node)}.widgets.find((each) => each.name === '{name}').value"
    )


def saved_picture(window: Window) -> Image.Image:
    """Fetch the picture that SaveImage shows, as it is on the server's disk."""
    source = window.page.evaluate(f"{NODE.format(type='SaveImage')}.imgs[0].src")
    with urllib.request.urlopen(source.split("&preview=")[0]) as answer:
        return Image.open(io.BytesIO(answer.read())).convert("RGB")


def test_new_user_opens_the_page_and_run_makes_a_red_circle(
    window: Window, start_server: Callable[..., RunningServer]
) -> None:
    server = start_server("--preview-method", "auto")
    window.open(server.url)
    assert node_types(window) == FIRST_GRAPH
    assert widget(window, "CLIPTextEncode", "text") == "a large red circle on a blue background"
    expect(window.page.get_by_role("dialog")).to_have_count(0)

    window.page.evaluate(RECORD_PROGRESS)
    window.page.get_by_test_id("queue-button").click()
    window.page.wait_for_function(f"{NODE.format(type='SaveImage')}.imgs?.length === 1")
    window.screenshot("first_picture")

    sampler = str(window.page.evaluate(f"{NODE.format(type='KSampler')}.id"))
    progress = window.page.evaluate("window.seenProgress")
    assert [each[1:] for each in progress if each[0] == sampler] == [[step, 20] for step in range(1, 21)]
    previews = window.page.evaluate("window.seenPreviews")
    assert {(node, kind) for node, kind, _ in previews} == {(sampler, "image/jpeg")}
    assert any(sampler in drawn for _, _, drawn in previews), "the page shows them at the sampler"
    picture = saved_picture(window)
    assert picture.size == (128, 128)
    assert is_red(picture.getpixel((64, 64)))
    assert all(is_blue(picture.getpixel(corner)) for corner in [(4, 4), (123, 4), (4, 123), (123, 123)])
    assert list((server.folder("output")).glob("*.png"))


def test_changed_workflow_comes_back_after_a_reload(
    window: Window, start_server: Callable[..., RunningServer]
) -> None:
    window.open(start_server().url)
    window.page.locator("textarea").first.fill("a yellow star on a black background")
    window.page.locator("#graph-canvas").click(position={"x": 1000, "y": 750})
    window.page.wait_for_function(DRAFT_IS_SAVED, arg="a yellow star on a black background")
    window.page.reload()
    window.wait_for_graph()
    assert widget(window, "CLIPTextEncode", "text") == "a yellow star on a black background"


def test_user_with_own_checkpoints_starts_with_a_graph_that_runs_here(
    window: Window, server: RunningServer
) -> None:
    window.open(server.url)
    known = window.page.evaluate("Object.keys(window.LiteGraph.registered_node_types)")
    assert set(node_types(window)) <= set(known)
    assert widget(window, "CheckpointLoaderSimple", "ckpt_name") == "shapes_v2.safetensors"
    expect(window.page.get_by_role("dialog")).to_have_count(0)


def is_red(pixel: Any) -> bool:
    """Tell whether an RGB pixel is clearly red."""
    red, green, blue = pixel
    return bool(red > 150 and green < 100 and blue < 100)


def is_blue(pixel: Any) -> bool:
    """Tell whether an RGB pixel is clearly blue."""
    red, green, blue = pixel
    return bool(blue > 120 and red < 100 and green < 130)
