"""The page shows where its run is after a reload, and what came of it after the connection was lost."""

from __future__ import annotations

from collections.abc import Callable

from tests.browser.conftest import Window, worker_pids
from tests.support.holding import held
from tests.support.server import RunningServer

CHANGE = """(values) => window.app.graph.nodes.flatMap((node) => node.widgets ?? [])
  .forEach((widget) => { if (widget.name in values) widget.value = values[widget.name]; })"""
SAVED = "window.app.graph.nodes.find((node) => node.type === 'SaveImage').imgs?.length === 1"
ENDLESS = {"steps": 10_000, "width": 512, "height": 512}
"""What makes a run take many minutes on any machine."""

IS_RUNNING = """async () => (await (await fetch("/api/queue")).json()).queue_running.length === 1"""

#: Sockets of a network that is down: they close at once, and the page tries again and again.
CUT_THE_NETWORK = """() => {
  window.NetworkSocket = window.WebSocket;
  window.WebSocket = class extends EventTarget {
    constructor() { super(); setTimeout(() => this.dispatchEvent(new Event("close")), 50); }
    send() {}
    close() {}
  };
  window.cutSocket = window.app.api.socket;
  window.cutSocket.close();
}"""
IS_CUT = "window.cutSocket.readyState === 3"
MEND_THE_NETWORK = "() => { window.WebSocket = window.NetworkSocket; }"
IS_DONE = """async () => {
  const answer = await fetch("/api/jobs?status=completed");
  return (await answer.json()).jobs.length === 1;
}"""


def run(window: Window, values: dict[str, int]) -> None:
    """Run the graph of the page with other values of its widgets."""
    window.page.evaluate(CHANGE, values)
    window.page.get_by_test_id("queue-button").click()


def wait_for_progress(window: Window) -> None:
    """Wait until the title shows how far run and node are; of a run that it does not follow only the node."""
    window.page.wait_for_function(r"/^\[[0-9]+%\]\[[0-9]+%\]/.test(document.title)")


def test_page_that_is_loaded_anew_follows_its_run(
    window: Window, start_server: Callable[..., RunningServer]
) -> None:
    window.open(start_server().url)
    run(window, ENDLESS)
    wait_for_progress(window)
    window.page.reload()
    window.wait_for_graph()
    wait_for_progress(window)
    window.screenshot("reloaded_mid_run")
    window.page.evaluate("fetch('/api/interrupt', { method: 'POST' })")
    window.page.wait_for_function("!document.title.startsWith('[')")


def test_page_shows_the_picture_of_a_run_that_ended_while_it_was_cut_off(
    window: Window, start_server: Callable[..., RunningServer]
) -> None:
    server = start_server()
    window.open(server.url)
    with held(*worker_pids(server)):
        run(window, {"steps": 4})
        window.page.wait_for_function(IS_RUNNING)
        window.page.wait_for_function("document.title.startsWith('[')")
        window.page.evaluate(CUT_THE_NETWORK)
        window.page.wait_for_function(IS_CUT)
    window.page.wait_for_function(IS_DONE)
    window.page.evaluate(MEND_THE_NETWORK)
    window.page.wait_for_function(SAVED)
    window.page.wait_for_function("!document.title.startsWith('[')")
    window.screenshot("cut_off_at_the_end")
