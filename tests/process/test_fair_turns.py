"""Whose prompt is next on one worker: tenants take turns, and a tenant's own prompts go by priority."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from comfyserverless.core.config import GRACE_S
from tests.process.test_recovery import endless, graph
from tests.support.client import Client
from tests.support.holding import held
from tests.support.server import RunningServer, ServerOptions
from tests.support.striking import until, until_idle
from tests.support.tenants import add_tenant, tenant_command

STEPS = 6
TRIES = 8
ENOUGH_S = 8.0
"""Of service: several times the slack, so that shares show."""

TENANTS = ("a", "b", "c", "warm")
Served = tuple[RunningServer, dict[str, str]]


@pytest.fixture(scope="module")
def served(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    base = tmp_path_factory.mktemp("turns")
    tokens = {name: add_tenant(base, name) for name in TENANTS}
    running = RunningServer.start(ServerOptions(base, models=tiny_models, flags=("--cache-none",)))
    try:
        yield running, tokens
    finally:
        running.stop()


async def ended_ms(client: Client, prompt_id: str) -> int:
    """Wait for the success of a prompt; returns when that was."""
    await until(lambda: client.get(f"/history/{prompt_id}"))
    entry = (await client.get(f"/history/{prompt_id}"))[prompt_id]
    kind, data = entry["status"]["messages"][-1]
    assert kind == "execution_success"
    return int(data["timestamp"])


async def test_equal_prompts_of_three_tenants_end_in_turns(served: Served) -> None:
    """Each takes less than the slack, so that who is a hair slower than the others does not lose its turn."""
    server, tokens = served
    async with Client(server.url, token=tokens["warm"]) as warm:
        for seed in (1, 2):
            await warm.run(graph(seed, STEPS))
        turns = []
        for _ in range(TRIES):  # a hiccup of the machine counts as service, too, and changes whose turn it is
            await asyncio.sleep(GRACE_S + 0.5)  # so that all begin anew, and nobody owes what was before
            (worker,) = await warm.wait_for_workers()
            turns.append(await order_of_ends(server, tokens, worker["pid"]))
            if turns[-1] == ["A1", "B1", "C1", "A2", "C2", "A3"]:
                return
    raise AssertionError(turns)


async def order_of_ends(server: RunningServer, tokens: dict[str, str], worker_pid: int) -> list[str]:
    """Send prompts of three tenants while the worker is held; returns them in the order of their ends."""
    sent: dict[str, tuple[str, str]] = {}
    clients = {name: Client(server.url, token=tokens[name]) for name in "abc"}
    for client in clients.values():
        await client.__aenter__()
    try:
        with held(worker_pid):
            for name in ("A1", "A2", "B1", "C1", "C2", "A3"):
                tenant = name[0].lower()
                sent[name] = tenant, await clients[tenant].submit(graph(3, STEPS))
        ends = {name: await ended_ms(clients[tenant], prompt) for name, (tenant, prompt) in sent.items()}
    finally:
        for client in clients.values():
            await client.__aexit__(None, None, None)
    return sorted(ends, key=lambda name: ends[name])


async def test_urgent_prompt_of_a_tenant_ends_while_its_long_one_runs(served: Served) -> None:
    server, tokens = served
    async with Client(server.url, token=tokens["a"]) as client:
        long = await client.submit(endless(4))
        waiting = await client.submit(graph(5, 2))
        await until(lambda: is_running(client, long))
        urgent = await client.submit(graph(6, 4), extra_data={"priority": 5})
        await ended_ms(client, urgent)
        queue = await client.get("/queue")
        assert [item[1] for item in queue["queue_running"]] == [long]
        assert [item[1] for item in queue["queue_pending"]] == [waiting]
        await client.post("/queue", {"clear": True})
        await client.post("/interrupt", {})
        await until_idle(client)


async def is_running(client: Client, prompt_id: str) -> bool:
    return prompt_id in [item[1] for item in (await client.get("/queue"))["queue_running"]]


async def test_priority_that_is_no_number_is_refused_by_name(served: Served) -> None:
    server, tokens = served
    async with Client(server.url, token=tokens["b"]) as client:
        status, answer = await client.post(
            "/prompt", {"prompt": graph(7, 2), "extra_data": {"priority": "now"}}
        )
    assert status == 400
    assert "`extra_data.priority` must be a whole number from -100 to 100, not 'now'" in str(answer)


async def test_changed_weight_of_a_running_server_holds_for_what_comes_then(served: Served) -> None:
    """Two tenants work side by side; from the change on one of them gets more and more ahead."""
    server, tokens = served
    async with Client(server.url, token=tokens["b"]) as one, Client(server.url, token=tokens["c"]) as other:
        for client in (one, other):
            await client.submit(endless(8))
        for client in (one, other):
            await until(lambda client=client: used_s(client))  # type: ignore[misc]
        tenant_command(server.options.base, "limit", "c", "--weight", "8")
        await until(lambda: gains_more(other, one))
        for client in (one, other):
            await client.post("/interrupt", {})
            await until_idle(client)
    tenant_command(server.options.base, "limit", "c", "--weight", "1")


async def gains_more(ahead: Client, behind: Client) -> bool:
    """Tell whether one tenant gets clearly more than another, once both have enough to compare."""
    before = [await used_s(client) for client in (ahead, behind)]

    async def gains() -> tuple[float, float]:
        ahead_s, behind_s = [await used_s(client) for client in (ahead, behind)]
        return ahead_s - before[0], behind_s - before[1]

    async def are_enough() -> bool:
        return sum(await gains()) > ENOUGH_S

    await until(are_enough)
    ahead_s, behind_s = await gains()
    return ahead_s > 1.5 * behind_s


async def used_s(client: Client) -> float:
    (row,) = (await client.get("/comfyserverless/tenants"))["tenants"]
    return float(row["service_s"]["gpu"])
