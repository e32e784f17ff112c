"""Drive the page in the Chromium of this machine."""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.support.server import RunningServer

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
PATIENCE_MS = 240_000
"""How long the browser is waited for: on a busy machine it may take a minute to come up, or to draw a page."""

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")

#: Files of the user that the page asks for and that need not exist.
OPTIONAL_PATHS = {"/user.css", "/api/userdata/user.css", "/api/userdata/comfy.templates.json"}


@dataclass(slots=True)
class Window:
    """One page, and what went wrong in it so far."""

    page: Page
    problems: list[str] = field(default_factory=list)

    def open(self, url: str) -> None:
        """Load the page and wait until it has a graph."""
        self.page.goto(url)
        self.wait_for_graph()

    def wait_for_graph(self) -> None:
        """Wait until the page has loaded a graph with nodes."""
        self.page.wait_for_function("window.app?.graph?.nodes.length > 0")

    def screenshot(self, name: str) -> None:
        """Save what the page looks like now under build/screenshots."""
        self.page.screenshot(path=self.screenshot_path(name))

    def screenshot_path(self, name: str) -> Path:
        """Return where a screenshot of this name goes."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        return SCREENSHOTS / f"{name}.png"


def is_expected(message: ConsoleMessage) -> bool:
    """Tell whether a console error is normal: an optional file, or a host that is not this server."""
    url = urlsplit(message.location.get("url", ""))
    outside = url.hostname not in (None, "127.0.0.1")
    return message.text.startswith("Failed to load resource") and (outside or url.path in OPTIONAL_PATHS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return a headless Chromium; skips where none is installed.

    Not for the session: while it lives, its event loop runs in this thread, and no asynchronous test can.
    """
    chromium = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if chromium is None:
        pytest.skip(f"NO BROWSER: the page was not tested, none of {', '.join(CHROMIUM_NAMES)} is installed")
    with sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE_MS)
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        running = playwright.chromium.launch(executable_path=chromium, args=arguments, timeout=PATIENCE_MS)
        yield running
        running.close()


def new_context(browser: Browser, width_px: int, height_px: int) -> BrowserContext:
    """Return a browser's context of a user who was never here, with patience for slow machines."""
    context = browser.new_context(viewport={"width": width_px, "height": height_px})
    context.set_default_timeout(PATIENCE_MS)
    context.set_default_navigation_timeout(PATIENCE_MS)
    return context


def worker_pids(server: RunningServer) -> list[int]:
    """List the processes of a server's workers, once all of them are up; for servers without accounts."""
    deadline_s = time.monotonic() + PATIENCE_MS / 1000
    while True:
        with urllib.request.urlopen(f"{server.url}/comfyserverless/workers") as answer:
            workers = json.load(answer)["workers"]
        if workers and all(worker["state"] in ("ready", "busy") for worker in workers):
            return [worker["pid"] for worker in workers]
        assert time.monotonic() < deadline_s, workers
        time.sleep(0.1)


@pytest.fixture
def window(browser: Browser, start_server: object) -> Iterator[Window]:
    """Return a fresh page of a user who was never here; fails the test on errors in the page.

    Asks for start_server only to be closed before the servers stop: a page without its server complains.
    """
    context = new_context(browser, 1600, 900)
    opened = Window(context.new_page())

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" and not is_expected(message):
            opened.problems.append(f"{message.text} ({message.location.get('url', '')})")

    opened.page.on("console", note)
    opened.page.on("pageerror", lambda error: opened.problems.append(str(error)))
    yield opened
    context.close()
    assert not opened.problems
