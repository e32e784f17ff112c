"""Make accounts as an operator does, and list every route that a server with accounts has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from comfyserverless.control.accounts.account import Account
from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.control.accounts.source import Accounts
from comfyserverless.control.accounts.tenants import Tenants
from comfyserverless.control.files import FolderPaths
from comfyserverless.core.config import EngineConfig, Folders, ServerConfig
from comfyserverless.core.ids import TenantId
from comfyserverless.server.app import build_app
from tests.support.fake_engine import FakeEngine

if TYPE_CHECKING:
    from comfyserverless.control.engine import Engine

ROOT = Path(__file__).parents[2]


def tenant_command(base: Path, *words: str) -> str:
    """Run `comfyserverless tenant ...` for the server of a base folder; returns what it printed."""
    command = [sys.executable, "-m", "comfyserverless", "tenant", *words, "--base-directory", str(base)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def add_tenant(base: Path, name: str, *flags: str) -> str:
    """Make an account; returns its token."""
    found = re.search(r"^csl_\S+$", tenant_command(base, "add", name, *flags), re.MULTILINE)
    assert found
    return found[0]


class FixedAccounts:
    """Hold accounts in memory; `change` is what another process would do."""

    def __init__(self, *accounts: Account) -> None:
        self._accounts: dict[TenantId, Account] = {account.tenant: account for account in accounts}
        self._version = 0

    def version(self) -> int:
        return self._version

    def read(self) -> Accounts:
        return dict(self._accounts)

    def change(self, *accounts: Account) -> None:
        self._accounts = {account.tenant: account for account in accounts}
        self._version += 1


def routes_with_accounts(base: Path) -> list[tuple[str, str]]:
    """List (method, path pattern) of every route of a server with accounts, as its router knows them."""
    folders = Folders(
        base=base,
        models=(),
        input=base / "input",
        output=base / "output",
        temp=base / "temp",
        user=base / "user",
        custom_nodes=base / "custom_nodes",
    )
    tenants = Tenants(FolderPaths(folders), AccountBook(FixedAccounts()))
    app = build_app(ServerConfig(EngineConfig(folders)), cast("Engine", FakeEngine()), tenants)
    routes = [(route.method, route.resource) for route in app.router.routes()]
    return [(method, resource.canonical) for method, resource in routes if resource is not None]
