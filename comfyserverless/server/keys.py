"""Name what handlers find in the application, and whose request it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from comfyserverless.control.files import FolderPaths
from comfyserverless.core.config import ServerConfig
from comfyserverless.core.ids import DEFAULT_TENANT, TenantId
from comfyserverless.server.logs import LogTape
from comfyserverless.server.sockets import SocketHub

if TYPE_CHECKING:
    from comfyserverless.control.engine import Engine

CONFIG = web.AppKey("config", ServerConfig)
ENGINE: web.AppKey[Engine] = web.AppKey("engine")
FILES = web.AppKey("files", FolderPaths)
HUB = web.AppKey("hub", SocketHub)
LOGS = web.AppKey("logs", LogTape)
WEB_FOLDERS = web.AppKey("web_folders", Mapping[str, Path])
"""Pack name -> folder of its page extension (every .js below it is imported by the page)."""

DEFAULT_USER = "default"


def tenant_of(request: web.Request) -> TenantId:
    """Tell who is charged for a request; single-user servers have one tenant."""
    return DEFAULT_TENANT


def user_of(request: web.Request) -> str:
    """Tell whose settings and files a request is about.

    Single-user: always `default`; the page sends an empty `Comfy-User` header, which is ignored, so ids of
    system users (leading `__`) cannot be named at all.
    """
    return DEFAULT_USER
