"""Drive the page in the Chromium of this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
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
        self.page.wait_for_function("window.app?.graph?.nodes.length > 0", timeout=60_000)

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
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def window(browser: Browser, start_server: object) -> Iterator[Window]:
    """Return a fresh page of a user who was never here; fails the test on errors in the page.

    Asks for start_server only to be closed before the servers stop: a page without its server complains.
    """
    context = browser.new_context(viewport={"width": 1600, "height": 900})
    opened = Window(context.new_page())

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" and not is_expected(message):
            opened.problems.append(f"{message.text} ({message.location.get('url', '')})")

    opened.page.on("console", note)
    opened.page.on("pageerror", lambda error: opened.problems.append(str(error)))
    yield opened
    context.close()
    assert not opened.problems
