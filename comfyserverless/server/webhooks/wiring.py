"""Join the webhooks to a server: where they are kept, whom they may reach, and when they are followed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from comfyserverless.control.records.opening import MEMORY
from comfyserverless.control.webhooks.courier import Courier
from comfyserverless.control.webhooks.outbox import FILE_NAME, Outbox
from comfyserverless.control.webhooks.reach import Reach
from comfyserverless.control.webhooks.signing import FOLDER, TenantSecrets
from comfyserverless.control.webhooks.target import Target, read_target
from comfyserverless.control.webhooks.webhooks import Surroundings, Webhooks
from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.server.keys import CONFIG, ENGINE, TENANTS, tenant_of
from comfyserverless.server.webhooks.payload import payload

FIELD = "webhook"
"""Key of `extra_data`; it never gets into a record, because addresses and secrets are nobody else's to see."""

_REACH = web.AppKey("webhook_reach", Reach)
_WEBHOOKS = web.AppKey("webhooks", Webhooks)


def set_up(app: web.Application) -> None:
    """Give the application its webhooks. Raises ConfigError for what `--webhook-allow` cannot be."""
    config, book = app[CONFIG], app[TENANTS].book
    folder = config.engine.folders.user / FOLDER
    reach = app[_REACH] = Reach(config.webhook_allow, is_open=book is None)

    def has_account(tenant: TenantId) -> bool:
        return book is None or book.find(tenant) is not None

    app[_WEBHOOKS] = Webhooks(
        Outbox(None if config.engine.database == MEMORY else folder / FILE_NAME),
        Courier(reach, TenantSecrets(folder)),
        Surroundings(app[ENGINE], payload, has_account),
    )
    app.cleanup_ctx.append(_follow)


async def _follow(app: web.Application) -> AsyncIterator[None]:
    webhooks = app[_WEBHOOKS]
    unsubscribe = app[ENGINE].subscribe(webhooks.on_notice)
    await webhooks.start()
    yield
    unsubscribe()
    await webhooks.stop()


def wanted_target(request: web.Request, extra_data: Any) -> Target | None:
    """Return whom a submission wants to be called. Raises WebhookError for a target that cannot be."""
    target = read_target(extra_data.get(FIELD)) if isinstance(extra_data, dict) else None
    if target is not None:
        request.app[_REACH].check(target)
    return target


async def expect(request: web.Request, prompt_id: PromptId, target: Target) -> None:
    """Have a target called when a prompt that was accepted just now has ended."""
    await request.app[_WEBHOOKS].expect(tenant_of(request), prompt_id, target)
