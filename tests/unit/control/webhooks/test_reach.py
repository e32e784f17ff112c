"""With accounts only public addresses are called, and what the operator has named."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from typing import Any

import pytest

from comfyserverless.control.webhooks.reach import MAX_LOOK_UPS, CheckedResolver, Reach, RefusedAddressError
from comfyserverless.control.webhooks.target import Target, WebhookError
from comfyserverless.core.errors import ConfigError

PUBLIC = ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"]
NOT_PUBLIC = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "2002:c0a8:101::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "fc00::1",
    "fe80::1",
    "ff02::1",
    "fec0::1",
]


def may(reach: Reach, address: str, host: str = "example.com") -> bool:
    return reach.may_reach(host, ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_called(address: str) -> None:
    assert may(Reach(), address)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_other_addresses_may_not_be_called_unless_there_are_no_accounts(address: str) -> None:
    assert not may(Reach(), address)
    assert may(Reach(is_open=True), address)


def test_operator_allows_hosts_addresses_and_networks() -> None:
    reach = Reach(["Hooks.internal.", "10.0.0.0/8", "fd00::5", "192.168.7.7"])
    assert may(reach, "192.168.0.1", host="hooks.internal")
    assert may(reach, "10.9.8.7")
    assert may(reach, "::ffff:10.9.8.7")
    assert may(reach, "fd00::5")
    assert may(reach, "192.168.7.7")
    assert not may(reach, "192.168.7.8")
    assert not may(reach, "192.168.0.1", host="evil.hooks.internal")
    assert not may(reach, "fd00::6")


@pytest.mark.parametrize("entry", ["", "http://x", "10.0.0.0/99", "a b", "host:80", "-x", "*"])
def test_entry_that_is_none_of_them_ends_the_start(entry: str) -> None:
    with pytest.raises(ConfigError, match="webhook-allow"):
        Reach([entry])


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8188/",
        "http://[::1]/",
        "http://localhost/",
        "http://a.localhost./",
        "http://10.0.0.1/",
    ],
)
def test_literal_addresses_are_refused_at_once(url: str) -> None:
    with pytest.raises(WebhookError):
        Reach().check(Target(url))
    Reach(is_open=True).check(Target(url))
    Reach(["127.0.0.1", "::1", "localhost", "10.0.0.0/8"]).check(Target(url))


def test_names_are_left_to_the_look_up() -> None:
    Reach().check(Target("http://localhost.example.com/"))


async def resolve(monkeypatch: pytest.MonkeyPatch, reach: Reach, addresses: list[str]) -> list[str]:
    """Look up a host that has these addresses."""

    def fake(host: str, port: Any, *_: Any, **__: Any) -> list[Any]:
        return [
            (socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port))
            for each in addresses
        ]

    monkeypatch.setattr(socket, "getaddrinfo", fake)
    return [found["host"] for found in await CheckedResolver(reach).resolve("example.com", 80)]


async def test_look_up_returns_only_what_may_be_called(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await resolve(monkeypatch, Reach(), [*NOT_PUBLIC, *PUBLIC]) == PUBLIC
    assert await resolve(monkeypatch, Reach(["127.0.0.0/8"]), ["127.0.0.1", "::1"]) == ["127.0.0.1"]


async def test_host_without_such_an_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedAddressError):
        await resolve(monkeypatch, Reach(), ["127.0.0.1", "fe80::1%2"])


async def test_look_ups_that_hang_hold_up_neither_others_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def hang(*_: Any) -> list[Any]:
        release.wait(60)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 80))]

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    resolver = CheckedResolver(Reach())
    waits = [asyncio.create_task(resolver.resolve("example.com")) for _ in range(MAX_LOOK_UPS)]
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="too many"):
        await resolver.resolve("example.com")
    assert await asyncio.to_thread(lambda: "free")
    waits[0].cancel()
    release.set()
    found = await asyncio.gather(*waits, return_exceptions=True)
    assert [len(each) for each in found[1:] if isinstance(each, list)] == [1] * (MAX_LOOK_UPS - 1)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: hang())
    assert await resolver.resolve("example.com")


@pytest.mark.parametrize("host", ["x" * 70 + ".com", "a..b"])
async def test_name_that_no_host_can_have_is_an_error_of_the_call(host: str) -> None:
    with pytest.raises((OSError, ValueError)):
        await CheckedResolver(Reach()).resolve(host, 80)


async def test_host_that_is_not_found_is_an_error_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", find_nothing)
    with pytest.raises(OSError, match="not known"):
        await CheckedResolver(Reach()).resolve("example.com", 80)
