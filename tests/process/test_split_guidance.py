"""Run graphs whose branches of guidance are calls apart: near ComfyUI's results, and equal on any workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process.test_callback_edges import (
    CHAIN,
    are_both_at_work,
    give_inputs,
    has_waited,
    is_idle,
    latents,
    latents_of,
    longer,
    waited_s,
)
from tests.support.client import Client
from tests.support.parity import compare, workflow_of
from tests.support.server import RunningServer
from tests.support.striking import caught, until

START = Callable[..., RunningServer]
CASES = (
    "cn_sd15_batch2_with_lora",
    "cn_sdxl_full",
    "cond_set_mask_default",
    "inpaint_set_latent_noise_mask",
    "sampler_sd15_dpm_adaptive",
    "sampler_sd15_dpmpp_2m_cfg_pp",
)


@pytest.fixture
def split(start_server: START, tiny_models: Path) -> Callable[..., RunningServer]:
    """Return what starts a server with so many workers that splits guidance."""

    def start(workers: int, *flags: str) -> RunningServer:
        given = ("--workers", str(workers), "--split-guidance", "on", *flags)
        return give_inputs(start_server(*given, models=tiny_models))

    return start


async def test_two_workers_give_the_recorded_results_and_the_bits_of_one(
    split: Callable[..., RunningServer],
) -> None:
    async with Client(split(1).url) as one, Client(split(2).url) as two:
        await two.wait_for_workers()
        for case in CASES:
            assert [each for each in await compare(two, case) if each.difference > 1.0] == [], case
            graph = workflow_of(case)
            assert await latents(two, graph) == await latents(one, graph), case
        assert await waited_s(one) == 0
        graph = longer("sampler_sd15_euler", 12)
        assert await has_waited(two, graph), "no step ran beside its negative branch"


async def test_death_of_either_worker_leaves_the_bits_as_they_are(
    split: Callable[..., RunningServer],
) -> None:
    graph = longer(CHAIN, 20)
    async with Client(split(2, "--cache-none").url) as client:
        await client.wait_for_workers()
        undisturbed = await latents(client, graph)
        for victim in (0, 1):
            async with caught(client, lambda: client.submit(graph), are_both_at_work) as work:
                work.kill(work.running[victim])
            assert await latents_of(client, work.prompt_id) == undisturbed, victim


async def test_interrupt_ends_both_branches(split: Callable[..., RunningServer]) -> None:
    async with Client(split(2).url) as client:
        await client.wait_for_workers()
        graph = longer("sampler_sd15_euler", 1000)
        async with caught(client, lambda: client.submit(graph), are_both_at_work) as work:
            await client.post("/interrupt", {"prompt_id": work.prompt_id})
        assert (await client.listen(work.prompt_id)).outcome == "execution_interrupted"
        await until(lambda: is_idle(client))
        assert await latents(client, workflow_of("sampler_sd15_euler"))


async def test_auto_measures_once_and_does_what_is_written_down_from_then_on(
    start_server: START, tiny_models: Path
) -> None:
    async def draw(split: str, written: dict[str, bool] | None = None) -> tuple[list[bytes], Path]:
        server = start_server("--workers", "1", "--split-guidance", split, models=tiny_models)
        kept = server.folder("user") / "__profiles" / "guidance.json"
        if written is not None:
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(json.dumps(written))
        async with Client(server.url) as client:
            drawn = await latents(client, workflow_of("sampler_sd15_euler"))
        server.stop()
        return drawn, kept

    measured, kept = await draw("auto")
    ((key, choice),) = json.loads(kept.read_text()).items()
    other, still_kept = await draw("auto", {key: not choice})
    assert json.loads(still_kept.read_text()) == {key: not choice}
    assert measured != other, "splitting does not move a bit of this case"
    assert (await draw("on"))[0] == (measured if choice else other)
