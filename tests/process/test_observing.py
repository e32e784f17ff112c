"""What an operator's machines see of a real server: health, metrics, and lines of a log."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from comfyserverless.control.metrics.labels import OTHER
from comfyserverless.core.modelfn import BUILTIN_FUNCTIONS
from tests.process.test_recovery import endless, graph, wait_for_step
from tests.support.client import Client
from tests.support.server import RunningServer, ServerOptions
from tests.support.striking import until
from tests.support.tenants import add_tenant, routes_with_accounts

NAMES = ("alice", "bob")
STEPS = 5
Served = tuple[RunningServer, dict[str, str]]


@pytest.fixture(scope="module")
def served(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    base = tmp_path_factory.mktemp("observed")
    tokens = {name: add_tenant(base, name) for name in NAMES}
    tokens["ops"] = add_tenant(base, "ops", "--operator")
    flags = ("--log-format", "json", "--verbose", "DEBUG", "--workers", "1", "--cache-none")
    running = RunningServer.start(ServerOptions(base, models=tiny_models, flags=flags))
    try:
        yield running, tokens
    finally:
        running.stop()


async def ready(server: RunningServer) -> tuple[int, list[str]]:
    """Return the status of `/readyz` and the reasons that it names; nobody has to log in for it."""
    async with aiohttp.ClientSession(server.url) as session, session.get("/readyz") as answer:
        return answer.status, (await answer.json()).get("reasons", [])


async def until_ready(server: RunningServer) -> None:
    async def is_ready() -> bool:
        return await ready(server) == (200, [])

    await until(is_ready)


def parent_of(pid: int) -> int:
    """Return the process that started a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^PPid:\s+(\d+)", status, re.MULTILINE).group(1))  # type: ignore[union-attr]


class Scrape:
    """What one reading of `/metrics` holds."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))

    def value(self, name: str, **labels: str) -> float | None:
        """Return a sample, None if there is none."""
        for family in self.families:
            for sample in family.samples:
                if sample.name == f"comfyserverless_{name}" and sample.labels == labels:
                    return float(sample.value)
        return None

    def labels(self, name: str) -> set[str]:
        """Return all values of a label."""
        samples = [sample for family in self.families for sample in family.samples]
        return {sample.labels[name] for sample in samples if name in sample.labels}


async def scrape(served: Served) -> Scrape:
    server, tokens = served
    headers = {"Authorization": f"Bearer {tokens['ops']}"}
    async with aiohttp.ClientSession(server.url) as session, session.get("/metrics", headers=headers) as answer:
        assert answer.status == 200
        return Scrape(await answer.text())


async def has_one_websocket(served: Served) -> bool:
    return (await scrape(served)).value("websocket_clients") == 1


async def has_counted(served: Served, before: Scrape) -> bool:
    """Tell whether a prompt of Alice's has been counted, after all of its parts."""
    labels = {"tenant": "alice", "outcome": "success"}
    seen = [each.value("prompts_total", **labels) or 0.0 for each in (before, await scrape(served))]
    return seen[1] > seen[0]


async def test_metrics_tell_what_a_prompt_did_within_bounds(served: Served, tmp_path: Path) -> None:
    server, tokens = served
    await until_ready(server)
    before = await scrape(served)
    async with Client(server.url, token=tokens["alice"]) as alice:
        run = await alice.run(graph(1, STEPS))
        assert run.outcome == "execution_success"
        await until(lambda: has_one_websocket(served))  # those of other tests go away in a moment
        async with alice.session.get("/metrics") as answer:
            assert answer.status == 403
        for path in ("/no/such/path", f"/history/{run.prompt_id}"):
            await (await alice.session.get(path)).read()

    await until(lambda: has_counted(served, before))
    after = await scrape(served)

    def grown(name: str, **labels: str) -> float:
        return (after.value(name, **labels) or 0.0) - (before.value(name, **labels) or 0.0)

    assert grown("prompts_total", tenant="alice", outcome="success") == 1
    assert grown("prompt_wait_seconds_count", tenant="alice") == 1
    assert grown("invocations_total", function="denoise.step", outcome="done") == STEPS
    for phase in ("queued", "load", "compute", "transfer"):
        assert grown(f"invocation_{phase}_seconds_count", function="denoise.step") == STEPS
    assert grown("invocation_compute_seconds_sum", function="denoise.step") > 0
    assert grown("nodes_total", result="executed") == len(graph(1))
    charged_s = grown("service_seconds_total", tenant="alice", lane="gpu")
    parts = ("load", "compute", "transfer")
    measured_s = sum(
        grown(f"invocation_{part}_seconds_sum", function=name)
        for part in parts
        for name, spec in BUILTIN_FUNCTIONS.items()
        if spec.lane == "gpu"
    )
    assert charged_s == pytest.approx(measured_s)
    assert after.value("vtime_spread_seconds", lane="gpu") == 0
    assert after.value("worker_up", worker="w0") == 1
    # Labels have the values that are known ahead, and no other.
    assert after.labels("tenant") <= {*NAMES, "ops", OTHER}
    assert after.labels("function") <= {*BUILTIN_FUNCTIONS, OTHER}
    templates = {path for _, path in routes_with_accounts(tmp_path)}
    assert after.labels("route") <= {*templates, "(none)"}
    assert grown("http_requests_total", method="GET", route="/history/{prompt_id}", status="200") >= 1


async def test_memory_of_a_worker_is_told_layer_by_layer_to_operators_alone(served: Served) -> None:
    server, tokens = served
    await until_ready(server)
    async with (
        Client(server.url, token=tokens["alice"]) as alice,
        Client(server.url, token=tokens["ops"]) as ops,
    ):
        await alice.run(graph(2, 2))

        async def has_models() -> bool:
            (worker,) = (await ops.get("/comfyserverless/workers"))["workers"]
            models = worker["memory"]["models"] or () if worker["memory"] else ()
            return {"unet", "vae decoder", "text l"} <= {model["kind"] for model in models}

        await until(has_models)  # workers tell every other second, and may have told in mid-run
        (worker,) = (await ops.get("/comfyserverless/workers"))["workers"]
        memory = worker["memory"]
        for model in memory["models"]:
            assert model["name"] == "sd15_tiny.safetensors"
            assert 0 < model["resident_bytes"] <= model["total_bytes"]
            assert all(0 <= first < end <= model["layers"] for first, end in model["resident"])
            assert 0 <= model["prefix"] <= model["layers"]
        assert sum(model["resident_bytes"] for model in memory["models"]) == memory["device"]["used_bytes"]
        assert memory["arena"]["total_bytes"] == worker["arena_bytes"]
        assert memory["counters"]["disk_layers"] > 0
        assert memory["link_s"] > 0
        (seen,) = (await alice.get("/comfyserverless/workers"))["workers"]
        assert seen["memory"] is None
    found = await scrape(served)
    assert found.value("link_round_trip_seconds", worker="w0")
    assert (found.value("weight_layers_total", worker="w0", tier="disk") or 0) > 0


async def test_server_without_workers_is_alive_and_not_ready_until_one_is_back(served: Served) -> None:
    server, tokens = served
    await until_ready(server)
    before = await scrape(served)
    async with Client(server.url, token=tokens["ops"]) as ops:
        (worker,) = (await ops.get("/comfyserverless/workers"))["workers"]
        zygote = parent_of(worker["pid"])
        # A new worker is there within a moment: it is made to wait, so that every machine sees it.
        os.kill(zygote, signal.SIGSTOP)
        try:
            os.kill(worker["pid"], signal.SIGKILL)

            async def is_unready() -> bool:
                return await ready(server) == (503, ["No worker is ready"])

            await until(is_unready)
            async with ops.session.get("/healthz") as answer:
                assert answer.status == 200
        finally:
            os.kill(zygote, signal.SIGCONT)
        await until_ready(server)
    after = await scrape(served)
    for name in ("workers_lost_total", "worker_restarts_total"):
        labels = {"worker": "w0"} if name.startswith("worker_") else {}
        assert (after.value(name, **labels) or 0) == (before.value(name, **labels) or 0) + 1


async def test_every_line_is_an_object_with_what_it_is_about_and_no_token(served: Served) -> None:
    server, tokens = served
    await until_ready(server)
    async with Client(server.url, token=tokens["bob"]) as bob:
        done = await bob.run(graph(3, 2))
        async with bob.session.ws_connect(f"/ws?clientId=second&token={tokens['bob']}"):
            pass
    whole = server.log().rpartition("\n")[0]  # the last line may be half written
    lines: list[dict[str, Any]] = [json.loads(line) for line in whole.splitlines()]
    for line in lines:
        assert {"time", "level", "logger", "message"} <= line.keys()
        assert line.keys() <= {
            *("time", "level", "logger", "message", "exception"),
            *("prompt_id", "tenant", "invocation", "worker"),
        }
    mine = [line for line in lines if line.get("prompt_id") == done.prompt_id]
    assert len(mine) >= 2
    assert {line["tenant"] for line in mine if line["logger"].startswith("comfyserverless.server")} == {"bob"}
    of_workers = [line for line in lines if line["logger"].startswith("comfyserverless.worker.")]
    assert any(line.get("worker") == "w0.0" for line in of_workers)
    log = server.log()
    assert not [name for name, token in tokens.items() if token in log]
    assert not re.search(r"[0-9a-f]{32}(?![0-9a-f-])", log)  # nor a token of a worker's link


async def test_server_that_drains_says_so_and_takes_no_more(
    start_server: Callable[..., RunningServer], tiny_models: Path
) -> None:
    server = start_server("--drain-timeout", "600", models=tiny_models)
    await until_ready(server)
    async with Client(server.url) as client:
        await client.submit(endless(5))
        await wait_for_step(client, 2)
        server.process.send_signal(signal.SIGTERM)

        async def is_stopping() -> bool:
            return await ready(server) == (503, ["The server is stopping"])

        await until(is_stopping)
        async with client.session.get("/healthz") as answer:
            assert answer.status == 200
        async with client.session.get("/metrics") as answer:  # without accounts, on loopback: open
            found = Scrape(await answer.text())
        assert found.value("ready") == 0
        assert found.value("running_prompts", tenant="default") == 1
        await client.post("/interrupt", {})
