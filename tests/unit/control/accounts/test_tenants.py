"""Without accounts there is one tenant with everything; with them each has its own, as it is now."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyserverless.control.accounts.account import Account, Limits
from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.control.accounts.tenants import Tenants, Weights
from comfyserverless.control.files import FolderPaths
from comfyserverless.core.config import Folders
from comfyserverless.core.ids import DEFAULT_TENANT, TenantId
from tests.support.tenants import FixedAccounts

ALICE = TenantId("alice")


@pytest.fixture
def files(tmp_path: Path) -> FolderPaths:
    places = {name: tmp_path / name for name in ("input", "output", "temp", "user")}
    return FolderPaths(Folders(base=tmp_path, models=(), custom_nodes=tmp_path / "c", **places))


def test_single_tenant_has_the_folders_of_the_server(files: FolderPaths) -> None:
    tenants = Tenants(files)
    assert tenants.files(DEFAULT_TENANT) is files
    assert (tenants.names(), tenants.limits(DEFAULT_TENANT), tenants.weight(DEFAULT_TENANT)) == (
        [DEFAULT_TENANT],
        Limits(),
        1.0,
    )


def test_folders_are_made_and_kept_until_the_allowed_models_change(files: FolderPaths) -> None:
    source = FixedAccounts(Account(ALICE))
    tenants = Tenants(files, AccountBook(source))
    own = tenants.files(ALICE)
    assert own.base("output") == files.base("output") / "alice"
    assert own.base("output").is_dir()
    assert tenants.files(ALICE) is own
    source.change(Account(ALICE, weight=4.0))
    assert tenants.files(ALICE) is own
    source.change(Account(ALICE, models=("vae/*",)))
    assert tenants.files(ALICE) is not own


def test_default_is_a_tenant_like_others_once_there_are_accounts(files: FolderPaths) -> None:
    tenants = Tenants(files, AccountBook(FixedAccounts(Account(DEFAULT_TENANT))))
    assert tenants.files(DEFAULT_TENANT).base("output") == files.base("output") / "default"


def test_removed_account_may_use_no_model(files: FolderPaths) -> None:
    tenants = Tenants(files, AccountBook(FixedAccounts()))
    assert not tenants.files(ALICE).is_allowed("vae", "/models/vae", "a.ckpt")


def test_weights_are_those_of_now(files: FolderPaths) -> None:
    source = FixedAccounts(Account(ALICE, weight=2.0))
    weights = Weights(Tenants(files, AccountBook(source)))
    assert dict(weights) == {ALICE: 2.0}
    source.change(Account(ALICE, weight=3.0))
    assert weights.get(ALICE, 1.0) == 3.0
    assert weights.get(TenantId("unknown"), 1.0) == 1.0
