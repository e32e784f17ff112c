"""Keep for a while what clients would have been sent that have gone away, so that they miss no end of a run.

Only messages that nothing repeats are kept: starts, outputs and ends of the client's own prompts. All is
bounded: in time, per client and altogether; what is beyond the bounds is forgotten, the oldest first, and the
client reads history instead, as it has to in ComfyUI.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from comfyserverless.core.ids import PromptId, TenantId

KEPT_S = 600.0
MAX_CLIENTS = 2_000
MAX_CLIENT_BYTES = 1 << 20
MAX_BYTES = 32 << 20

Frame = str | bytes
ClientKey = tuple[TenantId, str]


@dataclass(frozen=True, slots=True)
class Entry:
    """One frame on its way to a socket. run: the prompt of this client that it is about, None for all else."""

    frame: Frame
    is_droppable: bool = False
    run: PromptId | None = None

    @property
    def is_kept(self) -> bool:
        """Tell whether a client that is away should still get it."""
        return self.run is not None and not self.is_droppable


@dataclass(slots=True)
class _Absence:
    left_s: float
    entries: deque[Entry] = field(default_factory=deque)
    waiting_bytes: int = 0


class Missed:
    """Own what absent clients have missed; clock: seconds that only rise."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: all and only clients that left less than KEPT_S ago and have not come back, longest absent first.
        self._absent: OrderedDict[ClientKey, _Absence] = OrderedDict()
        #: the sum over `_absent`.
        self.waiting_bytes = 0

    def leave(self, client: ClientKey, unsent: Collection[Entry]) -> None:
        """Begin to keep messages for a client whose socket has closed. unsent: what was still on its way."""
        self.take(client)
        self._absent[client] = _Absence(self._clock())
        for entry in unsent:
            if entry.is_kept:
                self.keep(client, entry)
        self._forget_old()

    def is_away(self, client: ClientKey) -> bool:
        """Tell whether messages for a client are worth keeping."""
        return client in self._absent

    def keep(self, client: ClientKey, entry: Entry) -> None:
        """Keep a message for a client that is away; for others nothing happens."""
        absence = self._absent.get(client)
        if absence is None:
            return
        absence.entries.append(entry)
        self._add(absence, len(entry.frame))
        while absence.waiting_bytes > MAX_CLIENT_BYTES:
            self._add(absence, -len(absence.entries.popleft().frame))
        self._forget_old()

    def take(self, client: ClientKey) -> list[Entry]:
        """Return what a client has missed; it is back."""
        absence = self._absent.pop(client, None)
        if absence is None:
            return []
        self.waiting_bytes -= absence.waiting_bytes
        is_old = self._clock() - absence.left_s > KEPT_S
        return [] if is_old else list(absence.entries)

    def forget(self, tenant: TenantId) -> None:
        """Forget the clients of a tenant."""
        for client in [client for client in self._absent if client[0] == tenant]:
            self.take(client)

    def _add(self, absence: _Absence, count_bytes: int) -> None:
        absence.waiting_bytes += count_bytes
        self.waiting_bytes += count_bytes

    def _forget_old(self) -> None:
        now_s = self._clock()
        while self._absent:
            client, absence = next(iter(self._absent.items()))
            is_old = now_s - absence.left_s > KEPT_S
            if not is_old and len(self._absent) <= MAX_CLIENTS and self.waiting_bytes <= MAX_BYTES:
                return
            self.take(client)
