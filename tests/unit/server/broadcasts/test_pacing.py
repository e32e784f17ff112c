"""A few sockets hear of every change of the queue at once; a crowd hears of the last one, and soon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from comfyserverless.control.views import QueueChanged
from comfyserverless.core.ids import DEFAULT_TENANT, TenantId
from comfyserverless.server.broadcasts.pacing import FEW_SOCKETS, PAUSE_PER_SOCKET_S, QueuePace

BOB = TenantId("bob")


class Room:
    """Tenants with so many sockets each, and what they were told."""

    def __init__(self, **sockets: int) -> None:
        self.told: list[tuple[str, int]] = []
        self.pace = QueuePace(
            lambda change: self.told.append((change.tenant, change.remaining)), lambda tenant: sockets[tenant]
        )

    def change(self, *remaining: int, tenant: TenantId = DEFAULT_TENANT) -> None:
        for count in remaining:
            self.pace.offer(QueueChanged(tenant, count))


async def test_few_sockets_are_told_of_every_change_at_once() -> None:
    room = Room(default=FEW_SOCKETS)
    room.change(1, 2, 1, 0)
    assert [count for _, count in room.told] == [1, 2, 1, 0]


async def test_crowd_is_told_of_the_first_change_at_once_and_of_the_last_one_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[tuple[float, Callable[[], None]]] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda *pause: pauses.append(pause))
    room = Room(default=100, bob=1)
    room.change(1, 2, 3)
    room.change(7, 8, tenant=BOB)
    assert room.told == [("default", 1), ("bob", 7), ("bob", 8)], "a crowd holds up nobody else"
    assert [pause_s for pause_s, _ in pauses] == [100 * PAUSE_PER_SOCKET_S]
    pauses.pop()[1]()
    assert room.told[3:] == [("default", 3)]
    room.change(4, 5)
    assert room.told[4:] == [], "the pause after the last telling is not over"
    pauses.pop()[1]()
    assert room.told[4:] == [("default", 5)]
    pauses.pop()[1]()
    room.change(6)
    assert room.told[5:] == [("default", 6)], "after a pause without a change the next one is told at once"
