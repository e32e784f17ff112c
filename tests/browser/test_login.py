"""Prove with a real browser that a tenant logs in, makes a picture, and leaves nothing for the next one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import Window
from tests.support.server import RunningServer
from tests.support.tenants import add_tenant

SAVED = "window.app.graph.nodes.find((node) => node.type === 'SaveImage')"


def log_in(window: Window, token: str) -> None:
    window.page.get_by_label("Access token").fill(token)
    window.page.get_by_role("button", name="Log in").click()


def test_tenant_logs_in_runs_and_leaves_without_a_trace(
    window: Window, start_server: Callable[..., RunningServer], tmp_path: Path
) -> None:
    tokens = [add_tenant(tmp_path / "server0", name) for name in ("alice", "bob")]
    server = start_server()
    page = window.page
    page.goto(server.url)
    expect(page).to_have_title("comfyserverless: log in")
    window.screenshot("login")

    log_in(window, tokens[0])
    window.wait_for_graph()
    page.get_by_test_id("queue-button").click()
    page.wait_for_function(f"{SAVED}.imgs?.length === 1")
    shown = str(page.evaluate(f"{SAVED}.imgs[0].src"))
    assert [path.name for path in (server.folder("output") / "alice").glob("*.png")]
    assert not page.evaluate("document.cookie.includes('comfyserverless')")

    page.goto(f"{server.url}/login")
    expect(page.get_by_role("heading")).to_have_text("You are logged in as alice")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Access token")).to_be_visible()
    log_in(window, tokens[1])
    window.wait_for_graph()
    status = "async (url) => (await fetch(url, { cache: 'default' })).status"
    assert page.evaluate("async () => (await (await fetch('/history')).json())") == {}
    assert page.evaluate(status, shown) == 404
    window.problems.clear()  # the browser reports that 404 as an error
