"""Bring the workers of an island together: all get the same answer, whether and how they share GPU memory.

An island's workers share one NVSHMEM world, which can be neither joined nor left while it lives. So each says
once, before its Hello, whether it can take part; rank 0 sends the unique id that all need to find each other.
If one cannot, or does not come in time, all use shared memory: no worker may hold tensors that another one
cannot read.
"""

from __future__ import annotations

import asyncio
import logging

from comfyserverless.core.messages import IslandReady, JoinIsland

log = logging.getLogger(__name__)

_PATIENCE_S = 60.0


class _Meeting:
    """One island that forms; answer is the same for all."""

    def __init__(self) -> None:
        self.joined: dict[int, JoinIsland] = {}
        self.answer: asyncio.Future[IslandReady] = asyncio.get_running_loop().create_future()


class Islands:
    """Decide once for each island."""

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._meetings: dict[str, _Meeting] = {}

    async def join(self, message: JoinIsland) -> IslandReady:
        """Wait until the island has been decided on, and return what was decided."""
        place = message.place
        meeting = self._meetings.setdefault(place.name, _Meeting())
        if not meeting.answer.done():
            meeting.joined[place.rank] = message
            if len(meeting.joined) == place.ranks:
                meeting.answer.set_result(_decide(list(meeting.joined.values())))
        try:
            return await asyncio.wait_for(asyncio.shield(meeting.answer), self._patience_s)
        except TimeoutError:
            if not meeting.answer.done():
                missing = place.ranks - len(meeting.joined)
                log.error("island %s: %d of %d workers did not come", place.name, missing, place.ranks)
                meeting.answer.set_result(IslandReady(b"", "not all workers came"))
            return meeting.answer.result()


def _decide(joined: list[JoinIsland]) -> IslandReady:
    problem = next((each.problem for each in joined if each.problem), "")
    uid = next((each.uid for each in joined if each.uid), b"")
    if problem or not uid:
        return IslandReady(b"", problem or "rank 0 sent no unique id")
    return IslandReady(uid, "")
