"""Give tests of routes an application over empty folders and a fake engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from aiohttp.test_utils import TestClient, TestServer

from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.control.accounts.tenants import Tenants
from comfyserverless.control.files import FolderPaths
from comfyserverless.core.config import EngineConfig, Folders, ServerConfig
from comfyserverless.server.app import build_app
from tests.support.fake_engine import FakeEngine

if TYPE_CHECKING:
    from comfyserverless.control.engine import Engine

StartClient = Callable[..., Awaitable[TestClient[Any, Any]]]


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """Return folders below the test's own; all exist but the user's."""
    for name in ("models/checkpoints", "input", "output", "temp"):
        (tmp_path / name).mkdir(parents=True)
    return Folders(
        base=tmp_path,
        models=(tmp_path / "models",),
        input=tmp_path / "input",
        output=tmp_path / "output",
        temp=tmp_path / "temp",
        user=tmp_path / "user",
        custom_nodes=tmp_path / "custom_nodes",
    )


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
async def start_client(folders: Folders, engine: FakeEngine) -> AsyncIterator[StartClient]:
    """Return a function that starts a server with some settings changed: `await start_client(port=1)`.

    book: its accounts, if it shall have any.
    """
    started: list[TestClient[Any, Any]] = []

    async def start(book: AccountBook | None = None, **settings: Any) -> TestClient[Any, Any]:
        config = replace(ServerConfig(EngineConfig(folders)), **settings)
        app = build_app(config, cast("Engine", engine), Tenants(FolderPaths(folders), book))
        started.append(TestClient(TestServer(app)))
        await started[-1].start_server()
        return started[-1]

    yield start
    for client in started:
        await client.close()


@pytest.fixture
async def client(start_client: StartClient) -> TestClient[Any, Any]:
    """Return a client of a server with default settings."""
    return await start_client()
