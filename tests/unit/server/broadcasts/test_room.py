"""No tenant takes all the connections that a process may have."""

from __future__ import annotations

import asyncio
import resource

import pytest
from aiohttp import WSServerHandshakeError

from comfyserverless.control.accounts.account import Account, new_token, token_digest
from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.core.ids import TenantId
from comfyserverless.server.broadcasts.room import raise_file_limit, sockets_per_tenant
from comfyserverless.server.keys import HUB
from tests.support.tenants import FixedAccounts
from tests.unit.server.conftest import StartClient


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1024, 4096), 4096),
        ((1024, 1_048_576), 65_536),
        ((1024, resource.RLIM_INFINITY), 65_536),
        ((100_000, 1_048_576), 100_000),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), resource.RLIM_INFINITY),
    ],
)
def test_file_limit_rises_to_what_is_allowed_and_enough(
    monkeypatch: pytest.MonkeyPatch, before: tuple[int, int], after: int
) -> None:
    limits = [before]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    raise_file_limit()
    assert limits[-1] == (after, before[1])
    assert 0 < sockets_per_tenant() <= 65_536


async def test_tenant_with_too_many_websockets_is_refused_one_more_and_others_are_not(
    start_client: StartClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = {name: new_token() for name in ("alice", "bob")}
    accounts = [Account(TenantId(name), tokens=(token_digest(token),)) for name, token in tokens.items()]
    client = await start_client(book=AccountBook(FixedAccounts(*accounts)))
    monkeypatch.setattr("comfyserverless.server.routes.system.sockets_per_tenant", lambda: 2)
    alice, bob = ({"X-API-Key": token} for token in tokens.values())
    opened = [await client.ws_connect("/ws", headers=alice) for _ in range(2)]
    with pytest.raises(WSServerHandshakeError) as caught:
        await client.ws_connect("/ws", headers=alice)
    assert (caught.value.status, caught.value.headers and caught.value.headers["Retry-After"]) == (429, "5")
    opened.append(await client.ws_connect("/ws", headers=bob))
    await opened[0].close()
    assert client.app is not None
    hub = client.app[HUB]
    async with asyncio.timeout(60):
        while hub.count_of(TenantId("alice")) == 2:  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0.01)
    opened.append(await client.ws_connect("/ws", headers=alice))
    for socket in opened:
        await socket.close()
