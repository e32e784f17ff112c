"""Throw random requests, graphs and messages at a server: nothing fails in a way that is not meant.

This is a short run with fixed seeds; `python -m tests.support.fuzz` runs longer ones.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.client import Client
from tests.support.fuzz.graphs import break_graph, sound_graphs
from tests.support.fuzz.judging import (
    Report,
    judge_log,
    judge_prompt,
    maker_for,
    provide_inputs,
    worker_ids,
)
from tests.support.fuzz.requests import RequestMaker, judge_request
from tests.support.fuzz.sockets import judge_messages
from tests.support.server import RunningServer, ServerOptions

SEED = 20
DRAWN, ENOUGH = 24, 8
"""So many graphs are tried, and more until so many came to what their test is about: which ones are drawn
depends on the nodes that there are."""


@pytest.fixture(scope="module")
def target(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Return a server of this module's own: requests change settings, delete and interrupt."""
    options = ServerOptions(tmp_path_factory.mktemp("fuzz"), models=tiny_models)
    running = RunningServer.start(options)
    provide_inputs(options.base)
    try:
        yield running
        report = Report()
        judge_log(running.log(), report)
        report.check()
    finally:
        running.stop()


@pytest.fixture
async def client(target: RunningServer) -> AsyncIterator[Client]:
    async with Client(target.url) as connected:
        await connected.wait_for_workers()
        yield connected


async def test_every_route_answers_any_request(client: Client, target: RunningServer) -> None:
    report, maker, rng = Report(), RequestMaker(target.options.base / "routes"), random.Random(SEED)
    for route in maker.routes:
        await judge_request(client.session, maker.draw(rng, route), report)
    report.check()
    assert sum(report.counts.values()) == len(maker.routes)


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(rng=st.randoms(use_true_random=False))
def test_requests_of_many_kinds_are_answered(target: RunningServer, rng: random.Random) -> None:
    async def ask() -> None:
        async with Client(target.url) as client:
            await judge_request(client.session, maker.draw(rng), report)

    report, maker = Report(), RequestMaker(target.options.base / "routes")
    asyncio.run(ask())
    report.check()


async def test_graphs_end_well_or_say_what_is_wrong(client: Client, target: RunningServer) -> None:
    report, rng = Report(), random.Random(SEED)
    maker = maker_for(target.options.base, target.options.models, avoids_models=True)
    before = await worker_ids(client)
    for drawn, name in enumerate(rng.sample(sorted(maker.classes), len(maker.classes)), 1):
        await judge_prompt(client, maker.about(rng, name), report)
        if drawn >= DRAWN and report.counts["prompt success"] >= ENOUGH:
            break
    report.check()
    assert await worker_ids(client) == before
    assert report.counts["prompt success"] >= ENOUGH


async def test_broken_graphs_are_refused_or_end(client: Client) -> None:
    report, rng, sound = Report(), random.Random(SEED), sound_graphs()
    before = await worker_ids(client)
    for drawn in range(1, 10 * DRAWN):
        await judge_prompt(client, break_graph(rng, rng.choice(sound)), report)
        if drawn >= DRAWN and report.counts["prompt refused"] >= ENOUGH:
            break
    report.check()
    assert await worker_ids(client) == before
    assert report.counts["prompt refused"] >= ENOUGH


async def test_messages_over_websockets_do_no_harm(client: Client) -> None:
    report, rng = Report(), random.Random(SEED)
    for _ in range(10):
        await judge_messages(client.session, rng, report)
    report.check()
    assert report.counts["websocket"] >= 8
