"""Model folders of packs are those of the server, too."""

from __future__ import annotations

from pathlib import Path

import msgspec

from comfyserverless.control.accounts.account import Account
from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.control.accounts.tenants import Tenants
from comfyserverless.control.hosting.folders import follow_folders
from comfyserverless.core.hosting import Catalog, FolderInfo
from comfyserverless.core.ids import TenantId
from tests.support.tenants import FixedAccounts
from tests.unit.control.hosting.test_host import FIRST, Known

ALICE = TenantId("alice")


def test_folders_of_packs_are_seen_by_all_tenants(tmp_path: Path) -> None:
    known = Known(tmp_path)
    files = known.host._files
    tenants = Tenants(files, AccountBook(FixedAccounts(Account(ALICE))))
    follow_folders(known.host, tenants)
    assert "sams" not in tenants.files(ALICE).keys()  # noqa: SIM118
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.onnx").touch()
    (tmp_path / "s" / "b.pt").touch()
    before = files.paths("custom_nodes")
    known.host.joined(FIRST)
    folders = {
        "sams": FolderInfo((str(tmp_path / "s"),), (".onnx",)),
        "vae": FolderInfo((str(tmp_path / "s"),), ()),
        "custom_nodes": FolderInfo(("/elsewhere",), ()),
    }
    known.notice("catalog", msgspec.to_builtins(Catalog((), {}, folders=folders)))
    for view in (files, tenants.files(ALICE)):
        assert view.names("sams") == ["a.onnx"]
        assert view.names("vae") == ["a.onnx", "b.pt"]
        assert view.full_path("sams", "a.onnx") == str(tmp_path / "s" / "a.onnx")
    assert files.paths("custom_nodes") == before
