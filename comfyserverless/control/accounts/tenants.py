"""Tell what belongs to which tenant: files, limits, share of service. The server and the engine ask here.

Without accounts there is one tenant, which has the server's folders and no limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from comfyserverless.control.accounts.account import Account, Limits
from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.control.accounts.files import TenantFiles
from comfyserverless.control.files import FolderPaths
from comfyserverless.core.hosting import FolderInfo
from comfyserverless.core.ids import DEFAULT_TENANT, TenantId

_KINDS = ("input", "output", "temp")
_LINKS = ".embeddings"
_NO_LIMITS = Limits()


class Tenants:
    """Know all tenants. book: their accounts, None for a server with one user."""

    def __init__(self, files: FolderPaths, book: AccountBook | None = None) -> None:
        self.shared_files = files
        self.book = book
        #: tenant -> (the models it was allowed then, its files); made when first asked for.
        self._files: dict[TenantId, tuple[tuple[str, ...] | None, FolderPaths]] = {}

    def names(self) -> list[TenantId]:
        """List the tenants."""
        return [DEFAULT_TENANT] if self.book is None else list(self.book.accounts())

    def files(self, tenant: TenantId) -> FolderPaths:
        """Return a tenant's view of the files; its folders are made if they are missing."""
        if self.book is None:
            return self.shared_files
        account = self._account(tenant)
        allowed = () if account is None else account.models  # an account that was removed may use nothing
        known = self._files.get(tenant)
        if known is None or known[0] != allowed:
            known = self._files[tenant] = (allowed, self._open(tenant, allowed))
        return known[1]

    def adopt(self, folders: Mapping[str, FolderInfo]) -> None:
        """Search for models in folders that packs have added, too, in all tenants' views."""
        for key, info in folders.items():
            self.shared_files.adopt(key, info)
        self._files.clear()

    def limits(self, tenant: TenantId) -> Limits:
        """Return a tenant's limits."""
        account = self._account(tenant)
        return _NO_LIMITS if account is None else account.limits

    def weight(self, tenant: TenantId) -> float:
        """Return a tenant's share of service, relative to the others'."""
        account = self._account(tenant)
        return 1.0 if account is None else account.weight

    def _account(self, tenant: TenantId) -> Account | None:
        return None if self.book is None else self.book.accounts().get(tenant)

    def _open(self, tenant: TenantId, allowed: tuple[str, ...] | None) -> FolderPaths:
        bases: dict[str, Path] = {kind: self.shared_files.base(kind) / tenant for kind in _KINDS}
        for folder in bases.values():
            folder.mkdir(parents=True, exist_ok=True)
        links = self.shared_files.base("temp") / _LINKS / tenant
        return TenantFiles(self.shared_files, bases, allowed, links)


class Weights(Mapping[TenantId, float]):
    """Show the tenants' weights as they are now, in the form that scheduling takes."""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants

    def __getitem__(self, tenant: TenantId) -> float:
        return self._tenants.weight(tenant)

    def __iter__(self) -> Iterator[TenantId]:
        return iter(self._tenants.names())

    def __len__(self) -> int:
        return len(self._tenants.names())
