"""Name what handlers find in the application, and whose request it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from comfyserverless.control.accounts.tenants import Tenants
from comfyserverless.control.accounts.users import Users
from comfyserverless.control.files import FolderPaths
from comfyserverless.core.config import ServerConfig
from comfyserverless.core.ids import TenantId
from comfyserverless.server.access import Gate, identity_of
from comfyserverless.server.logs import LogTape
from comfyserverless.server.observing.requests import RequestMetrics
from comfyserverless.server.sockets import SocketHub

if TYPE_CHECKING:
    from comfyserverless.control.engine import Engine

_USER_HEADER = "Comfy-User"

CONFIG = web.AppKey("config", ServerConfig)
ENGINE: web.AppKey[Engine] = web.AppKey("engine")
TENANTS = web.AppKey("tenants", Tenants)
GATE = web.AppKey("gate", Gate)
"""Only there if there are accounts."""

USERS = web.AppKey("users", Users)
"""Only there if people choose by name whose settings they see (ComfyUI's multi-user mode)."""

HUB = web.AppKey("hub", SocketHub)
LOGS = web.AppKey("logs", LogTape)
REQUESTS = web.AppKey("requests", RequestMetrics)
WEB_FOLDERS = web.AppKey("web_folders", Mapping[str, Path])
"""Pack name -> folder of its page extension (every .js below it is imported by the page)."""


def tenant_of(request: web.Request) -> TenantId:
    """Tell who is charged for a request; single-user servers have one tenant."""
    return identity_of(request).tenant


def files_of(request: web.Request) -> FolderPaths:
    """Return the files that the sender of a request may see."""
    return request.app[TENANTS].files(tenant_of(request))


def user_of(request: web.Request) -> str:
    """Tell whose settings and files a request is about: a name of a folder.

    The page sends an empty `Comfy-User` header, which is ignored: nobody can name another user, except in
    multi-user mode. Raises 401 there for one that does not exist: the page then asks who it is.
    """
    users = request.app.get(USERS)
    if users is None:
        return identity_of(request).user
    user = request.headers.get(_USER_HEADER, "")
    if not users.is_known(user):
        raise web.HTTPUnauthorized(text="Unknown user")
    return user
