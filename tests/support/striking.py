"""Catch a prompt in the midst of its work on a real server, and do something to its workers there."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.support.client import Client
from tests.support.holding import held

Workers = Sequence[dict[str, Any]]
IsSo = Callable[[Workers, str], bool]
"""Tells from what workers run, and from the prompt's id, whether this is the moment."""

_TRIES = 100


class Caught:
    """A prompt whose workers are held. workers: as the server tells them."""

    def __init__(self, prompt_id: str, workers: Workers) -> None:
        self.prompt_id = prompt_id
        self.workers = workers

    @property
    def running(self) -> list[str]:
        """List the invocations of the prompt that run."""
        return running(self.workers, self.prompt_id)

    def kill(self, invocation: str) -> int:
        """Kill the worker that runs an invocation of the prompt; returns its process."""
        (pid,) = [worker["pid"] for worker in self.workers if invocation in worker["running"]]
        os.kill(pid, signal.SIGKILL)
        return int(pid)


@asynccontextmanager
async def caught(client: Client, submit: Callable[[], Awaitable[str]], is_so: IsSo) -> AsyncIterator[Caught]:
    """Submit a prompt, and hold the workers for the block at a moment at which `is_so`.

    How fast the machine is does not matter: what is seen of held workers lasts, and a prompt that was over
    before anybody could look is sent again.
    """
    for _ in range(_TRIES):
        prompt_id = await submit()
        while not await has_ended(client, prompt_id):
            workers = await client.wait_for_workers()
            if not is_so(workers, prompt_id):
                continue
            with held(*(worker["pid"] for worker in workers)):
                # Twice: what they had sent by then is known to the server after the first answer.
                for _ in range(2):
                    workers = await client.wait_for_workers()
                if is_so(workers, prompt_id):
                    yield Caught(prompt_id, workers)
                    return
    raise AssertionError(f"{_TRIES} prompts ended before anything was seen of them")


def running(workers: Workers, prompt_id: str) -> list[str]:
    """List the invocations of a prompt that workers run."""
    return [name for worker in workers for name in worker["running"] if prompt_id in name]


def is_at_step(node: str, step: int) -> IsSo:
    """Return what tells that a worker runs a call of a node, and so many calls of it are done."""

    def is_so(workers: Workers, prompt_id: str) -> bool:
        parts = [name.rsplit("/", 2) for name in running(workers, prompt_id)]
        return any(part[1] == node and int(part[2]) >= step for part in parts)

    return is_so


async def has_ended(client: Client, prompt_id: str) -> bool:
    """Tell whether a prompt is in history."""
    return bool(await client.get(f"/history/{prompt_id}"))


async def until(is_so: Callable[[], Awaitable[Any]], within_s: float = 240.0) -> Any:
    """Ask again and again until something is true, which lasts; returns it. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while not (found := await is_so()):  # noqa: ASYNC110  (another process is asked)
            await asyncio.sleep(0.05)
        return found


async def until_idle(client: Client) -> None:
    """Wait until nothing of the client's tenant waits or runs, and it is charged for nothing more."""

    async def is_idle() -> bool:
        queue = await client.get("/queue")
        rows = (await client.get("/comfyserverless/tenants"))["tenants"]
        return not any(queue.values()) and not any(row["pending"] + row["running"] for row in rows)

    await until(is_idle)
