"""Prove with a real browser that an operator sees tenants, queue, workers and cost; a tenant only its own."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE_MS, Window
from tests.browser.test_login import log_in
from tests.support.server import RunningServer
from tests.support.tenants import add_tenant

THEMES = ("dark", "light")
WIDTHS = (1280, 480)


def endless(seed: int) -> dict[str, Any]:
    """Return a graph of the demo model that takes many minutes on any machine."""
    return {
        "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "shapes_v2.safetensors"}},
        "2": {"class_type": "CLIPTextEncode", "inputs": {"clip": ["1", 1], "text": "a red circle"}},
        "4": {"class_type": "EmptyLatentImage", "inputs": {"width": 512, "height": 512, "batch_size": 1}},
        "5": {
            "class_type": "KSampler",
            "inputs": {
                "model": ["1", 0],
                "positive": ["2", 0],
                "negative": ["2", 0],
                "latent_image": ["4", 0],
                "seed": seed,
                "steps": 10_000,
                "cfg": 4.0,
                "sampler_name": "euler",
                "scheduler": "normal",
                "denoise": 1.0,
            },
        },
        "6": {"class_type": "VAEDecode", "inputs": {"samples": ["5", 0], "vae": ["1", 2]}},
        "7": {"class_type": "SaveImage", "inputs": {"images": ["6", 0], "filename_prefix": "dash"}},
    }


def submit(server: RunningServer, token: str, seed: int) -> str:
    """Send an endless prompt as a tenant; returns its id."""
    body = json.dumps({"prompt": endless(seed)}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{server.url}/prompt", body, headers)
    with urllib.request.urlopen(request) as answer:
        return str(json.load(answer)["prompt_id"])


def until(page: Page, condition: str, within_s: float = PATIENCE_MS / 1000) -> None:
    """Wait until something holds in the page, whose policy keeps the browser's own way from working."""
    until_true(page, lambda: bool(page.evaluate(condition)), within_s)


def until_true(page: Page, is_so: Callable[[], bool], within_s: float = PATIENCE_MS / 1000) -> None:
    """Ask again and again until something holds."""
    deadline_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline_s
        page.wait_for_timeout(100)


def point_at_a_bar(page: Page) -> bool:
    """Move the mouse to where the last bar is now, which moves on as time goes by."""
    box = page.locator("[data-bar]").last.bounding_box()
    if box is not None:
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    return box is not None


def open_dashboard(window: Window, server: RunningServer, token: str) -> None:
    window.page.goto(server.url)
    log_in(window, token)
    window.page.goto(f"{server.url}/dashboard")
    expect(window.page.locator(".csl-live")).to_have_text("Live")


def take_screenshots(window: Window, name: str) -> None:
    """Save the whole page in both themes and in both widths; nothing may stick out at the side."""
    page = window.page
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            until(page, f"document.documentElement.scrollWidth <= {width}")
            page.screenshot(path=window.screenshot_path(f"{name}_{theme}_{width}"), full_page=True)
    page.set_viewport_size({"width": 1280, "height": 900})


def test_operator_sees_how_two_tenants_share_a_worker(
    window: Window, start_server: Callable[..., RunningServer], tmp_path: Path
) -> None:
    base = tmp_path / "server0"
    alice, bob = add_tenant(base, "alice", "--operator"), add_tenant(base, "bob")
    server = start_server()
    page = window.page
    open_dashboard(window, server, alice)
    expect(page.locator("[data-tile=Workers]")).to_contain_text("1 / 1")
    expect(page.locator(".csl-queue")).to_contain_text("Nothing waits and nothing runs.")

    long = submit(server, alice, 1)
    ids = {long, *(submit(server, token, seed) for seed in (2, 3, 4) for token in (alice, bob))}
    rows = page.locator("[data-prompt]")
    expect(rows).to_have_count(len(ids))
    assert set(rows.evaluate_all("(all) => all.map((each) => each.dataset.prompt)")) == ids
    for name in ("alice", "bob"):
        expect(page.locator(f"[data-tenant={name}]")).to_contain_text("%")
    until(page, "new Set([...document.querySelectorAll('[data-bar]')].map((bar) => bar.style.fill)).size >= 2")
    until(page, "document.querySelectorAll('.csl-area').length >= 2")
    expect(page.locator("[data-worker=w0]")).to_contain_text("unet")
    tip = page.locator(".csl-tip")
    until_true(page, lambda: point_at_a_bar(page) and "Prompt" in "".join(tip.all_inner_texts()))
    page.locator("h1").hover()
    take_screenshots(window, "dashboard")

    expect(rows.filter(has_text="bob").get_by_role("button")).to_have_count(0)
    cancel = page.get_by_role("button", name=f"Cancel prompt {long}")
    cancel.focus()
    page.wait_for_timeout(2_500)
    expect(cancel).to_be_focused()  # redraws keep what the user has in hand
    cancel.press("Enter")
    expect(page.locator(f"[data-prompt='{long}']")).to_have_count(0)

    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".csl-live")).to_have_text("Paused")
    window.page.get_by_role("button", name="Theme: system").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_tenant_sees_only_its_own_and_is_told_when_the_session_ends(
    window: Window, start_server: Callable[..., RunningServer], tmp_path: Path
) -> None:
    base = tmp_path / "server0"
    alice, bob = add_tenant(base, "alice"), add_tenant(base, "bob")
    server = start_server()
    open_dashboard(window, server, bob)
    page = window.page
    expect(page.locator("[data-tile=Workers]")).to_contain_text("1 / 1")
    submit(server, alice, 1)
    own = submit(server, bob, 2)
    expect(page.locator("[data-prompt]")).to_have_count(1)
    expect(page.locator("[data-prompt]")).to_have_attribute("data-prompt", own)
    until(page, "document.querySelectorAll('[data-bar]').length >= 1")
    assert "alice" not in page.locator("body").inner_text()
    take_screenshots(window, "dashboard_tenant")
    page.context.clear_cookies()
    expect(page.get_by_role("link", name="Log in")).to_be_visible(timeout=30_000)
    assert own[:8] not in page.locator("main").inner_text()
    window.problems.clear()  # the browser reports the refusal as an error


def test_page_of_a_server_that_is_gone_keeps_its_picture_and_says_so(
    window: Window, start_server: Callable[..., RunningServer]
) -> None:
    server = start_server()
    page = window.page
    page.goto(f"{server.url}/dashboard")
    expect(page.locator("[data-worker]")).to_have_count(1)
    server.stop()
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    expect(page.locator("[data-worker]")).to_have_count(1)
    window.problems.clear()  # the browser reports the lost server as an error


def test_sidebar_shows_the_dashboard_in_the_theme_of_the_editor(window: Window, server: RunningServer) -> None:
    page = window.page
    page.goto(server.url)
    page.get_by_role("button", name="Overview").click(timeout=60_000)
    expect(page.locator("[data-worker]")).to_have_count(1)
    expect(page.locator("[data-worker]")).to_contain_text("Arena")
    expect(page.locator(".csl-problem")).to_have_count(0)
    expect(page.locator(".csl-sidebar")).to_have_attribute("data-theme", "dark")
    window.screenshot("dashboard_sidebar_dark")
    page.evaluate("window.app.extensionManager.setting.set('Comfy.ColorPalette', 'light')")
    expect(page.locator(".csl-sidebar")).to_have_attribute("data-theme", "light")
    window.screenshot("dashboard_sidebar_light")
    page.evaluate("window.app.extensionManager.setting.set('Comfy.ColorPalette', 'dark')")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_role("button", name="Overview").click()
    expect(page.locator(".csl-sidebar")).to_have_count(0)
    asked.clear()
    page.wait_for_timeout(2_500)
    assert not [url for url in asked if "overview" in url], "a closed tab asks nothing"
