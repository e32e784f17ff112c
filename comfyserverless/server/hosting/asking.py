"""Answer what packs ask of the server: its queue, its history, and to stop what runs; of one tenant each time.

A node that runs asks for its own tenant; a handler of a route, and other code of packs, says for whom it asks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.graph.lowering import LoweringContext
from comfyserverless.server.bodies import encode_json
from comfyserverless.server.records import history_record, queue_item

if TYPE_CHECKING:
    from comfyserverless.control.engine import Engine

_MOST_ENDED = 1000
"""Prompts of history that an answer holds at most."""


class PackAnswers:
    """Answer requests of the node host from the engine's records."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        requests = engine.hosting.requests
        requests.answer("queue", self.queue)
        requests.answer("history", self.history)
        requests.answer("interrupt", self.interrupt)

    def queue(self, context: LoweringContext | None, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return what runs and what waits, as `GET /queue` shows it."""
        tenant = _tenant(context, payload)
        running, pending = self._engine.running(tenant), self._engine.pending(tenant)
        shown = {"running": [*map(queue_item, running)], "pending": [*map(queue_item, pending)]}
        plain: dict[str, Any] = json.loads(encode_json(shown))
        return plain

    async def history(self, context: LoweringContext | None, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return ended prompts by id, the oldest first: one, or the latest `max_items`."""
        tenant = _tenant(context, payload)
        if payload.get("prompt_id") is not None:
            record = await self._engine.find(PromptId(str(payload["prompt_id"])), tenant)
            records = [] if record is None or record.ended_ms is None else [record]
        else:
            total, wanted = await self._engine.history_count(tenant), payload.get("max_items")
            count = min(total, _MOST_ENDED if wanted is None else max(0, int(wanted)), _MOST_ENDED)
            records = await self._engine.history(tenant, start=total - count, count=count) if count else []
        shown = {record.prompt_id: history_record(record) for record in records}
        plain: dict[str, Any] = json.loads(encode_json(shown))
        return plain

    def interrupt(self, context: LoweringContext | None, payload: Mapping[str, Any]) -> None:
        """Stop the prompt of the node that asks, or all that run of the tenant that is asked for."""
        run = None if context is None else PromptId(context.hidden.prompt_id)
        self._engine.interrupt(run, _tenant(context, payload))


def _tenant(context: LoweringContext | None, payload: Mapping[str, Any]) -> TenantId:
    return TenantId(str(payload.get("tenant", "")) if context is None else context.hidden.tenant)
