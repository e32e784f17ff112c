"""`POST /free` really frees: weights leave the workers, and results are made again if that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.process.test_recovery import graph
from tests.support.client import Client
from tests.support.server import RunningServer
from tests.support.striking import until


async def held_bytes(client: Client) -> tuple[int, int]:
    """Return the bytes of weights of the one worker, and of memory that it takes up, as it last said."""
    (worker,) = (await client.get("/comfyserverless/workers"))["workers"]
    return worker["weights_bytes"], worker["resident_bytes"]


async def free(client: Client, body: str) -> None:
    async with client.session.post("/free", data=body) as answer:
        assert (answer.status, await answer.text()) == (200, "")


async def test_weights_leave_and_results_stay_unless_asked_for(
    start_server: Callable[..., RunningServer], tiny_models: Path
) -> None:
    async with Client(start_server(models=tiny_models).url) as client:

        async def has_weights() -> bool:
            return (await held_bytes(client))[0] > 0

        async def has_none() -> bool:
            return (await held_bytes(client))[0] == 0

        async def has_less() -> bool:
            return before_bytes - (await held_bytes(client))[1] > weights_bytes // 2

        first = await client.run(graph(1, 2))
        await until(has_weights)
        await free(client, "")
        assert await has_weights()
        weights_bytes, before_bytes = await held_bytes(client)
        await free(client, '{"unload_models": true}')
        await until(has_none)
        await until(has_less)
        again = await client.run(graph(1, 2))
        assert len(again.cached_nodes()) == len(graph(1, 2))
        assert again.images() == first.images()
        await free(client, '{"free_memory": true}')
        anew = await client.run(graph(1, 2))
        assert anew.cached_nodes() == []
        assert await client.image(anew.images()[0]) == await client.image(first.images()[0])
        await until(has_weights)
        await free(client, '{"free_memory": true}')
        await until(has_none)
