"""Keep the page's settings per user, and say who the users are."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from typing import Any

import msgspec
from aiohttp import web

from comfyserverless.control.accounts.users import Users
from comfyserverless.server.bodies import (
    BodyError,
    encode_json,
    error_response,
    json_response,
    read_json,
    read_object,
)
from comfyserverless.server.disk import is_folder, write_file
from comfyserverless.server.keys import CONFIG, USERS
from comfyserverless.server.routes.userdata import user_folder

_log = logging.getLogger(__name__)

_FILE = "comfy.settings.json"
_LOCK = web.AppKey("settings_lock", asyncio.Lock)


def set_up(app: web.Application) -> None:
    """Give the application the lock that keeps concurrent writers from losing each other's keys, and users."""
    app[_LOCK] = asyncio.Lock()
    if app[CONFIG].has_users:
        app[USERS] = Users(app[CONFIG].engine.folders.user)


def _load(path: str) -> dict[str, Any]:
    """Read settings; what cannot be read is set aside, because a page without settings is better than none."""
    try:
        with open(path, "rb") as file:
            settings = msgspec.json.decode(file.read())
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, RecursionError, IsADirectoryError):
        settings = None
    if isinstance(settings, dict):
        return settings
    kept = _free_name(path + ".broken")
    _log.error("%s is not a file with a JSON object; it is kept as %s", _FILE, os.path.basename(kept))
    os.replace(path, kept)
    return {}


def _free_name(path: str) -> str:
    """Return the path itself, or the first of `path-1`, `path-2` ... that does not exist."""
    candidates = itertools.chain([path], (f"{path}-{count}" for count in itertools.count(1)))
    return next(candidate for candidate in candidates if not os.path.lexists(candidate))


async def _change(request: web.Request, changes: dict[str, Any]) -> web.Response:
    path = os.path.join(user_folder(request), _FILE)
    async with request.app[_LOCK]:
        settings = await asyncio.to_thread(_load, path)
        settings.update(changes)
        await asyncio.to_thread(write_file, path, encode_json(settings), may_replace=True)
    return web.Response()


async def _settings(request: web.Request) -> dict[str, Any]:
    async with request.app[_LOCK]:
        return await asyncio.to_thread(_load, os.path.join(user_folder(request), _FILE))


async def show_settings(request: web.Request) -> web.Response:
    """Show all settings."""
    return json_response(await _settings(request))


async def change_settings(request: web.Request) -> web.Response:
    """Merge an object into the settings."""
    return await _change(request, await read_object(request))


async def show_setting(request: web.Request) -> web.Response:
    """Show one setting, null if it was never set."""
    return json_response((await _settings(request)).get(request.match_info["id"]))


async def change_setting(request: web.Request) -> web.Response:
    """Set one setting to the JSON body."""
    return await _change(request, {request.match_info["id"]: await read_json(request)})


async def show_users(request: web.Request) -> web.Response:
    """Say that there is one user, or who they are; `migrated` tells whether the one's folder exists."""
    users = request.app.get(USERS)
    if users is not None:
        return json_response({"storage": "server", "users": users.names()})
    return json_response({"storage": "server", "migrated": is_folder(user_folder(request))})


async def add_user(request: web.Request) -> web.Response:
    """Add a user and answer with the new id; a single-user server has no user list."""
    users = request.app.get(USERS)
    if users is None:
        return error_response("This server has a single user", 400)
    name = (await read_object(request)).get("username")
    if not isinstance(name, str):
        raise BodyError("`username` must be a text")
    async with request.app[_LOCK]:
        return json_response(await asyncio.to_thread(users.add, name))


ROUTES = (
    web.get("/settings", show_settings),
    web.post("/settings", change_settings),
    web.get("/settings/{id}", show_setting),
    web.post("/settings/{id}", change_setting),
    web.get("/users", show_users),
    web.post("/users", add_user),
)
