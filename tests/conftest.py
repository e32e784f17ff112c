"""Give tests the tiny models and a real server; mark tests by their folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support.server import RunningServer, ServerOptions
from tests.support.tiny_models import ensure_tiny_models

# How long an example takes is the machine's affair: a property holds on a busy one, too.
hypothesis.settings.register_profile("busy machine", deadline=None)
hypothesis.settings.load_profile("busy machine")

MARKED_FOLDERS = (
    "process",
    "parity",
    "browser",
    "contract",
    "gpu",
    "native",
    "scenario",
    "sim",
    "arch",
    "unit",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with the folder of tests/ that it lies in."""
    for item in items:
        for folder in MARKED_FOLDERS:
            if folder in item.path.parts:
                item.add_marker(folder)


@pytest.fixture(scope="session")
def tiny_models() -> Path:
    """Return a models folder with the tiny SD 1.5 and SDXL models; made once, kept in build/."""
    return ensure_tiny_models()


@pytest.fixture(scope="session")
def server(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Return a server that all tests share, so that torch is imported once; leave it as you found it.

    It has the tiny models and the demo model. Use `start_server` to change flags or to hurt it.
    """
    running = RunningServer.start(ServerOptions(tmp_path_factory.mktemp("server"), models=tiny_models))
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., RunningServer]]:
    """Return a function that starts a server of this test only: `start_server(*flags, models=, env=)`.

    Servers that still run at the end of the test are stopped, and must leave nothing behind.
    """
    started: list[RunningServer] = []

    def start(*flags: str, models: Path | None = None, **more: dict[str, str]) -> RunningServer:
        base = tmp_path / f"server{len(started)}"
        started.append(RunningServer.start(ServerOptions(base, models, flags, more.get("env", {}))))
        return started[-1]

    yield start
    for running in started:
        if running.process.poll() is None:
            running.stop()
