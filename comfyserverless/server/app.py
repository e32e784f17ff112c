"""Build the web application: routes with their /api twins, middlewares, and the link to the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.typedefs import Middleware

from comfyserverless.control.accounts.tenants import Tenants
from comfyserverless.control.files import FolderPaths
from comfyserverless.core.config import ServerConfig
from comfyserverless.core.ids import TenantId
from comfyserverless.server import border
from comfyserverless.server.access import Gate, access_guard, private_headers, request_limit
from comfyserverless.server.ending import watch
from comfyserverless.server.hosting.asking import PackAnswers
from comfyserverless.server.hosting.messages import PackMessages
from comfyserverless.server.hosting.packs import PACKS, Packs, pack_routes
from comfyserverless.server.journal import Journal
from comfyserverless.server.keys import (
    CONFIG,
    ENGINE,
    GATE,
    HUB,
    LOGS,
    REQUESTS,
    TENANTS,
    WEB_FOLDERS,
    files_of,
    tenant_of,
)
from comfyserverless.server.logs import LogTape, log_message
from comfyserverless.server.observing.requests import RequestMetrics, counting
from comfyserverless.server.observing.scraping import Scraper
from comfyserverless.server.routes import (
    catalog,
    dashboard,
    health,
    jobs,
    library,
    login,
    media,
    page,
    prompts,
    settings,
    system,
    uploads,
    usage,
    userdata,
)
from comfyserverless.server.sockets import SocketHub
from comfyserverless.server.webhooks import wiring as webhooks

if TYPE_CHECKING:
    from comfyserverless.control.engine import Engine

_TWINNED = (prompts, media, uploads, catalog, userdata, settings, page, library, system, usage, dashboard)


def build_app(
    config: ServerConfig, engine: Engine, tenants: Tenants, logs: LogTape | None = None
) -> web.Application:
    """Build the application. The engine is subscribed to, not started or stopped, by it."""
    gate = None if tenants.book is None else Gate(tenants.book, config.accounts, config.cors_origin)
    requests = RequestMetrics(engine.metrics.registry)
    packs = Packs(engine.hosting, has_accounts=gate is not None)
    passing_on = pack_routes(packs, _sender_of, page.FILE_HANDLERS)
    middlewares = [counting(requests), *_middlewares(config, gate), passing_on]
    app = web.Application(middlewares=middlewares, client_max_size=config.max_upload_bytes)
    app[REQUESTS] = requests
    app[CONFIG] = config
    app[ENGINE] = engine
    app[TENANTS] = tenants
    app[HUB] = SocketHub(system.server_features(config))
    app[LOGS] = logs or LogTape()
    app[WEB_FOLDERS] = page.own_web_folders()
    app[PACKS] = packs
    settings.set_up(app)
    dashboard.set_up(app)
    webhooks.set_up(app)
    for module in _TWINNED:
        app.add_routes(_with_twins(module.ROUTES))
    if gate is not None:
        app[GATE] = gate
        app.add_routes(login.ROUTES)
        app.cleanup_ctx.append(watch.follow)
    app.add_routes([*health.ROUTES, *jobs.ROUTES, *system.INTERNAL_ROUTES, *page.ASSET_ROUTES])
    app.add_routes([*dashboard.PAGE_ROUTES, *library.FILE_ROUTES, *page.FILE_ROUTES])
    app.cleanup_ctx.append(_fan_out)
    messages = PackMessages(app[HUB], None if gate is None else gate.operators)
    engine.hosting.host.listen("send", messages.on_send)
    PackAnswers(engine)
    app.on_cleanup.append(_close_packs)
    app.on_shutdown.append(_close_sockets)
    app.on_response_prepare.append(border.cache_headers)
    app.on_response_prepare.append(border.cross_origin_headers(config))
    app.on_response_prepare.append(private_headers(gate))
    return app


def _middlewares(config: ServerConfig, gate: Gate | None) -> list[Middleware]:
    """List the middlewares, outermost first."""
    compression = [border.compress] if config.compress else []
    limit = border.upload_limit(config.max_upload_bytes, request_limit)
    scraper = Scraper(config.metrics_token) if config.metrics_token else None
    guard = access_guard(gate, scraper)
    return [border.error_border, border.origin_guard(config), guard, limit, *compression]


def _with_twins(routes: Iterable[web.RouteDef]) -> Iterable[web.RouteDef]:
    """Give each route its twin below /api."""
    for route in routes:
        yield route
        yield web.RouteDef(route.method, "/api" + route.path, route.handler, route.kwargs)


async def _fan_out(app: web.Application) -> AsyncIterator[None]:
    """Send the engine's notices and the console to the websockets, and runs to the log, while it runs."""
    hub, logs, loop = app[HUB], app[LOGS], asyncio.get_running_loop()
    ways_out = [app[ENGINE].subscribe(listener) for listener in (hub.on_notice, Journal().on_notice)]

    def show_line(line: dict[str, str], about: TenantId | None) -> None:
        loop.call_soon_threadsafe(hub.send_log, log_message([line]), about)

    logs.listen(show_line)
    yield
    logs.listen(None)
    for unsubscribe in ways_out:
        unsubscribe()


def _sender_of(request: web.Request) -> tuple[TenantId, FolderPaths]:
    """Tell of which tenant a request is, and what files it sees."""
    return tenant_of(request), files_of(request)


async def _close_packs(app: web.Application) -> None:
    await app[PACKS].close()


async def _close_sockets(app: web.Application) -> None:
    await app[HUB].close()
