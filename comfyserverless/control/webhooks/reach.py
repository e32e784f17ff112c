"""Decide which addresses webhooks may reach, so that tenants cannot use the server to look into its network.

An address is looked up once per call, and the call goes to the very address that was checked. With accounts
only public addresses are called, and what the operator has named.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import socket
import threading
from collections.abc import Sequence
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from comfyserverless.control.webhooks.target import Target, WebhookError
from comfyserverless.core.errors import ConfigError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Found = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]

MAX_LOOK_UPS = 32

_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_LOCALHOST = "localhost"
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class RefusedAddressError(OSError):
    """A host has no address that may be called."""


class Reach:
    """Know what may be called. allowed: hosts, addresses and networks that are not public and yet may be.

    is_open: everything may be; for a server that has one user. Raises ConfigError for an entry that is none.
    """

    def __init__(self, allowed: Sequence[str] = (), *, is_open: bool = False) -> None:
        self._is_open = is_open
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        self._hosts: set[str] = set()
        for entry in allowed:
            self._add(entry)

    def _add(self, entry: str) -> None:
        try:
            self._networks.append(ipaddress.ip_network(entry, strict=False))
            return
        except ValueError:
            host = entry.lower().rstrip(".")
        if _HOST.fullmatch(host) is None:
            raise ConfigError(
                f"--webhook-allow {entry!r} is not a host, an address or a network like 10.0.0.0/8"
            )
        self._hosts.add(host)

    def may_reach(self, host: str, address: Address) -> bool:
        """Tell whether a host may be called at an address that it has."""
        if self._is_open or host.lower().rstrip(".") in self._hosts:
            return True
        forms = _meant(address)
        if any(form in network for form in (address, *forms) for network in self._networks):
            return True
        return all(_is_public(form) for form in forms)

    def check(self, target: Target) -> None:
        """Refuse at once what needs no look-up to be refused. Raises WebhookError."""
        host = target.host
        name = "127.0.0.1" if host == _LOCALHOST or host.endswith(f".{_LOCALHOST}") else host
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return
        if not self.may_reach(host, address):
            raise WebhookError("webhook.url leads to an address that is not public; the operator can allow it")


def _is_public(address: Address) -> bool:
    is_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    return address.is_global and not (address.is_multicast or address.is_reserved or is_local)


def _meant(address: Address) -> list[Address]:
    """Return where packets to an address may end up: some IPv6 addresses stand for IPv4 ones."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address in _NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)]
    return [address] if address.sixtofour is None else [address, address.sixtofour]


class CheckedResolver(AbstractResolver):
    """Look hosts up for the HTTP client, which connects to what this returns and to nothing else.

    A look-up can hang for half a minute and cannot be stopped. Each has a thread of its own, which neither the
    rest of the server nor its end waits for; so many at once and no more.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._under_way = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host that may be called. Raises OSError if it has none."""
        results = [
            ResolveResult(
                hostname=host,
                host=str(place[0]),
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, place in await self._look_up(host, port, family)
            if self._reach.may_reach(host, ipaddress.ip_address(str(place[0])))
        ]
        if not results:
            raise RefusedAddressError("the host has no address that webhooks may call")
        return results

    async def close(self) -> None:
        """Give back nothing: there is nothing."""

    async def _look_up(self, host: str, port: int, family: socket.AddressFamily) -> Sequence[_Found]:
        if self._under_way >= MAX_LOOK_UPS:
            raise OSError("too many hosts are looked up at once")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[_Found]] = loop.create_future()

        def finish(found: Sequence[_Found], error: Exception | None) -> None:
            self._under_way -= 1
            if answer.done():  # nobody waits any more
                return
            if error is None:
                answer.set_result(found)
            else:
                answer.set_exception(error)

        def ask() -> None:
            found: Sequence[Any] = ()
            error: Exception | None = None
            try:
                found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
            except (OSError, ValueError) as exc:  # ValueError: what cannot be the name of a host
                error = exc
            with contextlib.suppress(RuntimeError):  # the server has ended meanwhile
                loop.call_soon_threadsafe(finish, found, error)

        self._under_way += 1
        threading.Thread(target=ask, name="webhook-look-up", daemon=True).start()
        return await answer
