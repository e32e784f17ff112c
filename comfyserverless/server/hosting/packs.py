"""Know what packs bring to the page and its routes, as of now."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.typedefs import Middleware

from comfyserverless.control.files import FolderPaths
from comfyserverless.core.errors import CapacityError
from comfyserverless.core.hosting import Catalog
from comfyserverless.core.ids import TenantId
from comfyserverless.server.access import has_identity
from comfyserverless.server.border import Handler
from comfyserverless.server.hosting.forwarding import Forwarder
from comfyserverless.server.hosting.matching import PackRoutes

if TYPE_CHECKING:
    from comfyserverless.control.hosting.hosting import Hosting

_log = logging.getLogger(__name__)

PAGE_WITHIN_S = 45.0
"""How long the page waits at most for packs that are being loaded: it gives up itself after 60 s. It waits only
while loading goes on: built-in nodes are there, whatever a pack does."""

AGAIN_WITHIN_S = 10.0
"""How long it waits for a node host that is started again: what the one before had will do, too."""

PROMPT_WITHIN_S = 10.0
"""How long on-prompt handlers of packs may take together."""

_NO_PACKS = Catalog((), {})

PACKS: web.AppKey[Packs] = web.AppKey("packs")


class Packs:
    """What the server asks about packs. has_accounts: credentials of requests are ours."""

    def __init__(self, hosting: Hosting, *, has_accounts: bool) -> None:
        self._hosting = hosting
        self._has_accounts = has_accounts
        self._catalog: Catalog | None = None
        self._routes = PackRoutes(())
        self._forwarder: Forwarder | None = None

    async def close(self) -> None:
        """Drop connections to the node host."""
        if self._forwarder is not None:
            await self._forwarder.close()

    async def catalog(self) -> Catalog:
        """Return what the packs bring; waits for some time while they are being loaded."""
        known = self._hosting.host.catalog
        return await self._hosting.host.loaded_soon(self._patience_s()) or known or _NO_PACKS

    def _patience_s(self) -> float:
        return PAGE_WITHIN_S if self._hosting.host.catalog is None else AGAIN_WITHIN_S

    async def web_folders(self) -> Mapping[str, Path]:
        """Return the folders of page extensions: /extensions name -> folder."""
        return {name: Path(folder) for name, folder in (await self.catalog()).web_folders.items()}

    async def object_info(
        self, files: FolderPaths, class_type: str | None = None
    ) -> Mapping[str, Mapping[str, Any]]:
        """Return the entries of the packs' node classes, or of one; the page would not survive a broken one."""
        try:
            patience_s = self._patience_s()
            asking = self._hosting.object_info(files, class_type, patience_s)
            found = await asyncio.wait_for(asking, patience_s)
        except TimeoutError:
            _log.warning("node packs are still being loaded: their nodes are not shown as they are now")
            known = self._hosting.host.catalog or _NO_PACKS
            found = {name: each.info for name, each in known.classes.items() if class_type in (None, name)}
        return {name: info for name, info in found.items() if _is_whole(name, info)}

    async def edited(self, body: dict[str, Any], tenant: TenantId, files: FolderPaths) -> dict[str, Any]:
        """Return the body of a submission after the on-prompt handlers; itself if they cannot be asked."""
        catalog = self._hosting.host.catalog
        if catalog is None or not catalog.has_prompt_handlers:
            return body
        question = {"body": json.dumps(body), "about": {"tenant": tenant, "places": places_of(files)}}
        try:
            answer = await self._hosting.host.ask("prompt", question, PROMPT_WITHIN_S)
            given = json.loads(answer["body"])
        except (CapacityError, ValueError) as exc:
            _log.warning("on-prompt handlers of packs are passed over: %s", exc)
            return body
        return given if isinstance(given, dict) else body

    async def answer(
        self, request: web.Request, tenant: TenantId, files: FolderPaths
    ) -> web.StreamResponse | None:
        """Answer a request that is for a route of a pack; None if it is not."""
        catalog = self._hosting.host.catalog  # no waiting: the page asks for files that need not be there
        if catalog is None or not catalog.http:
            return None
        if catalog is not self._catalog:
            await self._follow(catalog)
        if self._forwarder is None or not await self._routes.has(request):
            return None
        served = json.dumps({"tenant": tenant, "places": places_of(files)})
        return await self._forwarder.forward(request, served)

    async def _follow(self, catalog: Catalog) -> None:
        """Take the routes of a catalog; after a restart of the host there is a new one."""
        self._catalog, self._routes = catalog, PackRoutes(catalog.routes)
        before = self._forwarder
        self._forwarder = Forwarder(catalog.http, has_accounts=self._has_accounts)
        if before is not None:
            await before.close()


def places_of(files: FolderPaths) -> dict[str, str]:
    """Return a tenant's folders by kind."""
    folders = {kind: str(files.base(kind)) for kind in ("input", "output", "temp")}
    return {**folders, "user": str(files.folders.user)}


def _is_whole(name: str, info: Mapping[str, Any]) -> bool:
    is_whole = isinstance(info.get("python_module"), str) and isinstance(info.get("name"), str)
    if not is_whole:
        _log.warning("the node class %s of a pack is not shown: its description has no name or module", name)
    return is_whole


def pack_routes(
    packs: Packs, sender: Callable[[web.Request], tuple[TenantId, FolderPaths]], own_files: frozenset[Any]
) -> Middleware:
    """Pass on what no route of ours answers.

    sender: tells of whom a request is, and what files that tenant sees; own_files: handlers of ours that take
    any path, and answer 404 for what they have not.
    """

    @web.middleware
    async def pass_on(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = request.match_info.http_exception
        is_own = refusal is None and request.match_info.handler not in own_files
        if is_own or not has_identity(request):
            return await handler(request)
        answer = None if refusal is not None else await handler(request)
        if answer is not None and answer.status != web.HTTPNotFound.status_code:
            return answer
        theirs = await packs.answer(request, *sender(request))
        if theirs is not None:
            return theirs
        return answer if answer is not None else await handler(request)

    return pass_on
