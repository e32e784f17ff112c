"""Answer what packs ask about the queue; it is the server's, so they cannot change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from comfyserverless.host.bridge import bridge
from comfyserverless.host.missing import unsupported


class PromptQueue:
    """Stand for the queue of prompts, of the tenant that is served now."""

    put = unsupported("server.PromptServer.prompt_queue.put")
    get = unsupported("server.PromptServer.prompt_queue.get")
    task_done = unsupported("server.PromptServer.prompt_queue.task_done")
    wipe_queue = unsupported("server.PromptServer.prompt_queue.wipe_queue")
    wipe_history = unsupported("server.PromptServer.prompt_queue.wipe_history")
    delete_queue_item = unsupported("server.PromptServer.prompt_queue.delete_queue_item")
    delete_history_item = unsupported("server.PromptServer.prompt_queue.delete_history_item")
    set_flag = unsupported("server.PromptServer.prompt_queue.set_flag")

    def get_current_queue(self) -> tuple[list[Any], list[Any]]:
        """Return what runs and what waits, as `GET /queue` shows it."""
        found = bridge().ask("queue", {"tenant": bridge().call.tenant})
        return list(found["running"]), list(found["pending"])

    get_current_queue_volatile = get_current_queue

    def get_tasks_remaining(self) -> int:
        """Return how many prompts run or wait."""
        return sum(map(len, self.get_current_queue()))

    def get_history(
        self,
        prompt_id: str | None = None,
        max_items: int | None = None,
        offset: int = -1,
        map_function: Callable[[Any], Any] | None = None,
    ) -> dict[str, Any]:
        """Return ended prompts by id, as `GET /history` shows them: one, or some from `offset` on."""
        question: dict[str, Any] = {"tenant": bridge().call.tenant, "prompt_id": prompt_id, "max_items": None}
        if offset < 0:
            question["max_items"] = max_items
        found = list(bridge().ask("history", question).items())
        if offset >= 0:
            found = found[offset : None if max_items is None else offset + max_items]
        return {run: entry if map_function is None else map_function(entry) for run, entry in found}

    @property
    def currently_running(self) -> dict[int, Any]:
        """Return what runs, numbered."""
        return dict(enumerate(self.get_current_queue()[0]))
