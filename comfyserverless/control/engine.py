"""Run the system behind the server: queue, runs, workers, caches; the server talks to this class only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from comfyserverless.control.files import FolderPaths
from comfyserverless.control.views import Notice, RunRecord, SubmitRequest, SubmitResult, WorkerView
from comfyserverless.core.config import EngineConfig
from comfyserverless.core.ids import DEFAULT_TENANT, PromptId, TenantId


class Engine:
    """Own the queue, the runs and the workers of one server; all methods run on its event loop."""

    def __init__(self, config: EngineConfig, files: FolderPaths) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        """Start the worker processes in the background and begin to run prompts; returns at once."""

    async def stop(self) -> None:
        """Stop runs and workers; leaves no process, arena or staging file behind."""

    def subscribe(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        """Call `listener` with every notice, in order, on the event loop; returns the way to unsubscribe."""
        raise NotImplementedError

    def submit(self, request: SubmitRequest) -> SubmitResult:
        """Validate and enqueue a prompt. The counter behind `number` also advances for rejected ones."""
        raise NotImplementedError

    def remaining(self, tenant: TenantId = DEFAULT_TENANT) -> int:
        """Return how many prompts are pending or running."""
        raise NotImplementedError

    def running(self, tenant: TenantId = DEFAULT_TENANT) -> list[RunRecord]:
        """List the running prompts."""
        raise NotImplementedError

    def pending(self, tenant: TenantId = DEFAULT_TENANT) -> list[RunRecord]:
        """List the waiting prompts, next one first."""
        raise NotImplementedError

    def history(self, tenant: TenantId = DEFAULT_TENANT) -> Sequence[RunRecord]:
        """List ended prompts, oldest first (bounded; the oldest are dropped)."""
        raise NotImplementedError

    def find(self, prompt_id: PromptId, tenant: TenantId = DEFAULT_TENANT) -> RunRecord | None:
        """Return the record of a prompt in any state, None if this tenant has no such prompt."""
        raise NotImplementedError

    def interrupt(self, prompt_id: PromptId | None, tenant: TenantId = DEFAULT_TENANT) -> bool:
        """Stop a running prompt (None: all running ones of the tenant); False if none was running."""
        raise NotImplementedError

    def cancel(self, prompt_id: PromptId, tenant: TenantId = DEFAULT_TENANT) -> bool:
        """Interrupt a running prompt or drop a pending one; False if it was neither."""
        raise NotImplementedError

    def delete_pending(self, prompt_ids: Sequence[PromptId], tenant: TenantId = DEFAULT_TENANT) -> int:
        """Drop pending prompts; unknown and running ones are left alone. Returns how many were dropped."""
        raise NotImplementedError

    def clear_pending(self, tenant: TenantId = DEFAULT_TENANT) -> int:
        """Drop all pending prompts of the tenant."""
        raise NotImplementedError

    def delete_history(self, prompt_ids: Sequence[PromptId], tenant: TenantId = DEFAULT_TENANT) -> None:
        """Forget ended prompts; unknown ids are ignored."""
        raise NotImplementedError

    def clear_history(self, tenant: TenantId = DEFAULT_TENANT) -> None:
        """Forget all ended prompts of the tenant."""
        raise NotImplementedError

    def free(self, *, unload_models: bool, free_memory: bool) -> None:
        """Drop cached weights on the workers, and with free_memory the cached node results too, once idle."""
        raise NotImplementedError

    def workers(self) -> list[WorkerView]:
        """List the worker slots with their latest figures."""
        raise NotImplementedError
