"""The page shows where its run is after a reload, and what came of it after the connection was lost."""

from __future__ import annotations

from collections.abc import Callable

from tests.browser.conftest import Window
from tests.support.server import RunningServer

SAMPLER = "window.app.graph.nodes.find((node) => node.type === 'KSampler')"
SAVED = "window.app.graph.nodes.find((node) => node.type === 'SaveImage').imgs?.length === 1"
MANY_STEPS = 400

#: Sockets of a network that is down: they close at once, and the page tries again and again.
CUT_THE_NETWORK = """() => {
  window.NetworkSocket = window.WebSocket;
  window.WebSocket = class extends EventTarget {
    constructor() { super(); setTimeout(() => this.dispatchEvent(new Event("close")), 50); }
    send() {}
    close() {}
  };
  window.app.api.socket.close();
}"""
MEND_THE_NETWORK = "() => { window.WebSocket = window.NetworkSocket; }"
IS_DONE = """async () => {
  const answer = await fetch("/api/jobs?status=completed");
  return (await answer.json()).jobs.length === 1;
}"""


def run(window: Window, server: RunningServer, steps: int) -> None:
    """Open the page and run its first graph with so many steps, until the sampler is at work."""
    window.open(server.url)
    window.page.evaluate(f"{SAMPLER}.widgets.find((each) => each.name === 'steps').value = {steps}")
    window.page.get_by_test_id("queue-button").click()
    wait_for_progress(window)


def wait_for_progress(window: Window) -> None:
    """Wait until the title shows how far run and node are; of a run that it does not follow only the node."""
    window.page.wait_for_function(r"/^\[[0-9]+%\]\[[0-9]+%\]/.test(document.title)", timeout=60_000)


def test_page_that_is_loaded_anew_follows_its_run(
    window: Window, start_server: Callable[..., RunningServer]
) -> None:
    run(window, start_server(), MANY_STEPS)
    window.page.reload()
    window.wait_for_graph()
    wait_for_progress(window)
    window.screenshot("reloaded_mid_run")
    window.page.evaluate("fetch('/api/interrupt', { method: 'POST' })")
    window.page.wait_for_function("!document.title.startsWith('[')")


def test_page_shows_the_picture_of_a_run_that_ended_while_it_was_cut_off(
    window: Window, start_server: Callable[..., RunningServer]
) -> None:
    run(window, start_server(), 40)
    window.page.evaluate(CUT_THE_NETWORK)
    window.page.wait_for_function(IS_DONE, timeout=120_000)
    window.page.evaluate(MEND_THE_NETWORK)
    window.page.wait_for_function(SAVED)
    window.page.wait_for_function("!document.title.startsWith('[')")
    window.screenshot("cut_off_at_the_end")
