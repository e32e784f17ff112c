"""See accounts, tokens and sessions end while the server runs, and end what they have opened.

A websocket outlives the request that opened it, so its sender is asked for again and again: who has lost a
token hears nothing more. What waits or runs of an account that has ended is dropped, which nothing brings back:
a tenant that is only missing (from a file that may be half written just now) has to stay so for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from aiohttp import web

from comfyserverless.core.errors import CapacityError
from comfyserverless.core.ids import TenantId
from comfyserverless.server.keys import ENGINE, GATE, HUB

if TYPE_CHECKING:
    from comfyserverless.server.access import Gate
    from comfyserverless.server.sockets import Socket

EVERY_S = 2.0
MISSING_LOOKS = 3
"""How many looks in a row a tenant has to be missing before its account is taken to have ended."""

_SOCKETS_AT_ONCE = 50


class Endings:
    """Tell which accounts have ended, look by look."""

    def __init__(self) -> None:
        #: all and only tenants that were missing at the last look -> for how many looks.
        self._missing: dict[TenantId, int] = {}

    def ended(self, gate: Gate, tenants: set[TenantId]) -> set[TenantId]:
        """Return those of some tenants whose accounts have ended: disabled ones at once."""
        accounts = gate.book.accounts()
        self._missing = {
            tenant: self._missing.get(tenant, 0) + 1 for tenant in tenants if tenant not in accounts
        }
        disabled = {tenant for tenant in tenants if tenant in accounts and accounts[tenant].is_disabled}
        return disabled | {tenant for tenant, looks in self._missing.items() if looks >= MISSING_LOOKS}


async def follow(app: web.Application) -> AsyncIterator[None]:
    """Look again and again while the server runs."""
    task = asyncio.create_task(_look_again_and_again(app), name="accounts-watch")
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    app[GATE].close()


async def _look_again_and_again(app: web.Application) -> None:
    gate, engine, hub = app[GATE], app[ENGINE], app[HUB]
    endings = Endings()
    while True:
        await asyncio.sleep(EVERY_S)
        for tenant in endings.ended(gate, {*engine.busy_tenants(), *hub.tenants()}):
            engine.stop_tenant(tenant)
            hub.cut_off(tenant)
        for number, opened in enumerate(hub.sockets()):
            if number % _SOCKETS_AT_ONCE == 0:
                await asyncio.sleep(0)  # requests go first
            review(app, opened)


def review(app: web.Application, opened: Socket) -> None:
    """Close a websocket whose sender has lost its credential; take away what only operators may see."""
    gate, hub = app[GATE], app[HUB]
    try:
        identity = gate.identify(opened.request)
    except CapacityError:  # nobody knows now
        return
    if identity is None or identity.tenant != opened.tenant:
        if opened.tenant in gate.book.accounts():  # one that is missing may be back at the next look
            opened.abort()
    elif not identity.is_operator:
        hub.limit_log_reader(opened)
