"""Let the state of a queue out at a pace that a crowd of sockets can be told at.

A few sockets are told of every change at once, as by ComfyUI. The more there are, the longer the pause after
each telling; of the changes in a pause only the last one is told, as it says all that the others did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from comfyserverless.control.views import QueueChanged
from comfyserverless.core.ids import TenantId

FEW_SOCKETS = 8
PAUSE_PER_SOCKET_S = 1e-3
"""A thousand sockets are told once a second."""


class QueuePace:
    """Decide when a change is told. tell: tells it; audience: how many sockets a tenant has."""

    def __init__(self, tell: Callable[[QueueChanged], None], audience: Callable[[TenantId], int]) -> None:
        self._tell = tell
        self._audience = audience
        #: all and only tenants in a pause -> the last change in it, None if there was none yet.
        self._waiting: dict[TenantId, QueueChanged | None] = {}

    def offer(self, change: QueueChanged) -> None:
        """Tell a change now, or at the end of the pause unless a newer one comes."""
        if change.tenant in self._waiting:
            self._waiting[change.tenant] = change
            return
        self._tell(change)
        sockets = self._audience(change.tenant)
        if sockets > FEW_SOCKETS:
            self._waiting[change.tenant] = None
            pause_s = sockets * PAUSE_PER_SOCKET_S
            asyncio.get_running_loop().call_later(pause_s, partial(self._go_on, change.tenant))

    def _go_on(self, tenant: TenantId) -> None:
        change = self._waiting.pop(tenant)
        if change is not None:
            self.offer(change)
