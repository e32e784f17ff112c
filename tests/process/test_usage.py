"""What two tenants use adds up to the nanosecond, whoever dies meanwhile; and who has used enough must wait."""

from __future__ import annotations

import asyncio
import csv
import io
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.process.test_recovery import graph
from tests.support.client import Client
from tests.support.server import PATIENCE_S, RunningServer, ServerOptions
from tests.support.striking import caught, has_ended, is_at_step, until
from tests.support.tenants import add_tenant, tenant_command

WITHIN_S = PATIENCE_S
NEAR_S = 300.0
PARTS = ("load_s", "compute_s", "transfer_s", "untimed_s")
START = Callable[[], RunningServer]


@pytest.fixture
def start(tiny_models: Path, tmp_path: Path) -> Iterator[START]:
    """Return a function that starts servers on one folder, one after the other."""
    started: list[RunningServer] = []

    def run() -> RunningServer:
        started.append(RunningServer.start(ServerOptions(tmp_path / "base", models=tiny_models)))
        return started[-1]

    yield run
    for running in started:
        if running.process.poll() is None:
            running.stop()


async def table(client: Client, query: str) -> list[dict[str, str]]:
    """Return a table of usage; its seconds are exact."""
    async with client.session.get(f"/api/usage?format=csv&{query}") as answer:
        assert answer.status == 200
        return list(csv.DictReader(io.StringIO(await answer.text(), newline="")))


def total(rows: list[dict[str, str]], *names: str) -> Decimal:
    return sum((Decimal(row[name]) for row in rows for name in names), Decimal(0))


async def checked_total_s(client: Client) -> Decimal:
    """Return what a tenant was charged, which every way of adding it up agrees on."""
    by_day, by_prompt = await table(client, "group_by=day,lane"), await table(client, "group_by=prompt,lane")
    by_node = await table(client, "group_by=node,function,model,worker")
    charged_s = total(by_day, "charged_s")
    for rows in (by_day, by_prompt, by_node):
        assert total(rows, "charged_s") == total(rows, *PARTS) == charged_s
    for prompt_id in {row["prompt_id"] for row in by_prompt}:
        of_prompt = [row for row in by_prompt if row["prompt_id"] == prompt_id]
        of_nodes = [row for row in by_node if row["prompt_id"] == prompt_id]
        assert total(of_prompt, "charged_s") == total(of_nodes, "charged_s")
        costs = await client.get(f"/usage/prompts/{prompt_id}")
        shown_s = [costs["charged_s"], sum(node["charged_s"] for node in costs["nodes"].values())]
        assert shown_s == pytest.approx([float(total(of_prompt, "charged_s"))] * 2)
    (mine,) = (await client.get("/comfyserverless/tenants"))["tenants"]
    assert sum(mine["service_s"].values()) == pytest.approx(float(charged_s), abs=1e-6)
    return charged_s


async def test_accounts_of_two_tenants_agree_through_lost_workers_and_lost_servers(
    start: START, tmp_path: Path
) -> None:
    tokens = {name: add_tenant(tmp_path / "base", name) for name in ("alice", "bob")}
    tokens["ops"] = add_tenant(tmp_path / "base", "ops", "--operator")
    server = start()
    async with (
        Client(server.url, token=tokens["alice"]) as alice,
        Client(server.url, token=tokens["bob"]) as bob,
    ):
        await alice.wait_for_workers()
        run = await alice.run(graph(1, 6), within_s=WITHIN_S)
        costs = await alice.get(f"/api/usage/prompts/{run.prompt_id}")
        assert costs["status"] == "completed"
        assert list(costs["nodes"]) == ["2", "3", "4", "5", "6", "7"], "node 1 only wires models"
        assert costs["nodes"]["5"]["workers"] == ["w0"]
        assert costs["nodes"]["5"]["calls"] == 8
        assert not any(node["cached"] for node in costs["nodes"].values())
        models = {row["model"] for row in await table(alice, "group_by=model")}
        assert "sd15_tiny.safetensors" in models

        again = await alice.run(graph(1, 6) | {"8": preview()}, within_s=WITHIN_S)
        cached = (await alice.get(f"/usage/prompts/{again.prompt_id}"))["nodes"]
        assert {node for node, cost in cached.items() if cost["cached"]} >= {"2", "3", "5", "6"}
        assert (cached["5"]["charged_s"], cached["8"]["cached"]) == (0.0, False)
        await bob.run(graph(2, 4), within_s=WITHIN_S)

        async with caught(alice, lambda: alice.submit(graph(3, 60)), is_at_step("5", 3)) as work:
            work.kill(work.running[0])
        hurt = work.prompt_id
        await until(lambda: has_ended(alice, hurt))
        (lost,) = [each for each in await stays(alice, hurt) if each["outcome"] == "lost"]
        assert lost["charged_s"] == lost["untimed_s"] > 0
        sums = [await checked_total_s(client) for client in (alice, bob)]
        assert total(await table(alice, f"prompt_id={hurt}&group_by=prompt"), "untimed_s") > 0

        async with caught(bob, lambda: bob.submit(graph(4, 60)), is_at_step("5", 3)) as work:
            waiting = work.prompt_id
            await bob.get("/usage")  # whoever asks has it written
            seen_s = (await bob.get(f"/usage/prompts/{waiting}"))["charged_s"]
            server.process.kill()
            server.process.wait(PATIENCE_S)

    server = start()
    async with (
        Client(server.url, token=tokens["bob"]) as bob,
        Client(server.url, token=tokens["alice"]) as alice,
    ):
        await until(lambda: has_ended(bob, waiting))
        rows = await table(bob, f"prompt_id={waiting}&group_by=function")
        (steps,) = [row for row in rows if row["function"] == "denoise.step"]
        assert int(steps["calls"]) > 60, "both tries are the prompt's"
        assert float(total(rows, "charged_s")) > seen_s
        after = [await checked_total_s(client) for client in (alice, bob)]
        assert after[0] == sums[0]
        assert after[1] >= sums[1] + Decimal(seen_s).quantize(Decimal("0.000001"))
        async with Client(server.url, token=tokens["ops"]) as ops:
            everybody = await table(ops, "tenant=*&group_by=tenant")
        assert {row["tenant"]: Decimal(row["charged_s"]) for row in everybody} == dict(
            zip(("alice", "bob"), after, strict=True)
        )


def preview() -> dict[str, Any]:
    return {"class_type": "PreviewImage", "inputs": {"images": ["6", 0]}}


async def stays(client: Client, prompt_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get(f"/usage/invocations?limit=2000&prompt_id={prompt_id}"))[
        "invocations"
    ]
    return found


async def wait_for_a_long_rest_of_the_day() -> None:
    """Let midnight (UTC) pass if it is near: a new day has new GPU seconds."""
    left_s = 86_400 - time.time() % 86_400
    if left_s < NEAR_S:
        await asyncio.sleep(left_s + 1)


async def test_used_up_gpu_seconds_stay_used_up_over_a_restart_and_nothing_that_waits_is_lost(
    start: START, tmp_path: Path
) -> None:
    await wait_for_a_long_rest_of_the_day()
    base = tmp_path / "base"
    token = add_tenant(base, "alice", "--gpu-seconds-per-day", "1000", "--max-running", "1")
    server = start()
    async with Client(server.url, token=token) as alice:
        async with caught(alice, lambda: alice.submit(graph(1, 40)), is_at_step("5", 3)) as work:
            waiting = await alice.submit(graph(2, 2))
            tenant_command(base, "limit", "alice", "--gpu-seconds-per-day", "0.001")
            await refused(alice)
        run = await alice.listen(work.prompt_id)
        assert run.outcome == "execution_success", "what runs goes on"
        assert [item[1] for item in (await alice.get("/queue"))["queue_pending"]] == [waiting]
    assert "Tenant alice has used up its GPU seconds" in server.log()
    server.stop()
    server = start()
    async with Client(server.url, token=token) as alice:
        await alice.wait_for_workers(within_s=WITHIN_S)
        await refused(alice)
        assert [item[1] for item in (await alice.get("/queue"))["queue_pending"]] == [waiting]
        (mine,) = (await alice.get("/comfyserverless/tenants"))["tenants"]
        assert mine["limits"]["max_gpu_s_per_day"] == 0.001
        assert mine["today_s"]["gpu"] > 0.001
        tenant_command(base, "limit", "alice", "--gpu-seconds-per-day", "none")
        await until(lambda: has_ended(alice, waiting))


async def refused(client: Client) -> None:
    """Expect that a prompt is refused for its GPU seconds, in ComfyUI's shape."""
    async with client.session.post("/prompt", json={"prompt": graph(9, 2)}) as answer:
        body = await answer.json()
        assert answer.status == 429, body
        assert 0 < int(answer.headers["Retry-After"]) <= 86_400
    assert body["node_errors"] == {}
    assert body["error"].keys() == {"type", "message", "details", "extra_info"}
    assert body["error"]["type"] == "gpu_seconds_used_up"
    assert "of 0.001 GPU seconds of today are used" in body["error"]["details"]
    assert "00:00 UTC" in body["error"]["details"]


async def test_limits_of_requests_are_told_in_the_shape_of_the_route(start: START, tmp_path: Path) -> None:
    token = add_tenant(tmp_path / "base", "alice", "--max-request-size", "0.001")
    server = start()

    async def chunks() -> Any:
        for _ in range(20):
            yield b" " * 1000

    async with Client(server.url, token=token) as alice:
        for data in (b" " * 20_000, chunks()):
            async with alice.session.post("/prompt", data=data) as answer:
                assert answer.status == 413
                body = await answer.json()
                assert body["error"].keys() == {"type", "message", "details", "extra_info"}
                assert (body["error"]["type"], body["node_errors"]) == ("too_large", {})
