"""Prompts of tenants are queued, limited and stopped apart from each other; no worker is needed for that."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comfyserverless.control.accounts.account import Account, Limits
from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.control.accounts.tenants import Tenants
from comfyserverless.control.engine import Engine
from comfyserverless.control.files import FolderPaths
from comfyserverless.control.views import Notice, RunFailed, RunStatus, SubmitRequest, SubmitResult
from comfyserverless.core.config import EngineConfig, Folders, WorkerConfig
from comfyserverless.core.errors import CapacityError
from comfyserverless.core.ids import PromptId, TenantId
from tests.support.tenants import FixedAccounts
from tests.support.usage import measured

ALICE, BOB = TenantId("alice"), TenantId("bob")
SAVE: dict[str, Any] = {
    "1": {"class_type": "LoadImage", "inputs": {"image": "a.png"}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "a"}},
}


@pytest.fixture
def source() -> FixedAccounts:
    return FixedAccounts(Account(ALICE), Account(BOB))


@pytest.fixture
async def engine(tmp_path: Path, source: FixedAccounts) -> AsyncIterator[Engine]:
    """Return an engine with three slots and no worker: what starts never ends."""
    places = {name: tmp_path / name for name in ("input", "output", "temp", "user")}
    folders = Folders(base=tmp_path, models=(), custom_nodes=tmp_path / "c", **places)
    for tenant in (ALICE, BOB):
        (folders.input / tenant).mkdir(parents=True)
        (folders.input / tenant / "a.png").write_bytes(b"")
    tenants = Tenants(FolderPaths(folders), AccountBook(source))
    made = Engine(EngineConfig(folders, WorkerConfig(workers=3)), tenants)
    yield made
    if not made._runs.is_stopping:
        await made.stop()


async def send(
    engine: Engine, tenant: TenantId, prompt_id: str | None = None, **extra_data: Any
) -> SubmitResult:
    given = prompt_id and PromptId(prompt_id)
    result = await engine.submit(SubmitRequest(SAVE, tenant, prompt_id=given, extra_data=extra_data))
    for _ in range(3):
        await asyncio.sleep(0)
    return result


async def turn_until(condition: Callable[[], bool]) -> None:
    """Let the event loop turn until something holds."""
    async with asyncio.timeout(60):
        while True:
            if condition():
                return
            await asyncio.sleep(0)


async def idle(engine: Engine, tenant: TenantId) -> None:
    """Let the event loop turn until a tenant has nothing waiting or running."""
    await turn_until(lambda: not engine.remaining(tenant))


async def test_tenant_runs_no_more_prompts_than_it_may_and_others_are_not_held_up(
    engine: Engine, source: FixedAccounts
) -> None:
    source.change(Account(ALICE, limits=Limits(max_running=2)), Account(BOB))
    for tenant in (ALICE, BOB) * 4:
        await send(engine, tenant)
    assert (len(engine.running(ALICE)), len(engine.pending(ALICE))) == (2, 2)
    assert (len(engine.running(BOB)), len(engine.pending(BOB))) == (3, 1)
    usage = engine.usage(ALICE)
    assert (usage.running, usage.pending, set(usage.service_s.values())) == (2, 2, {0.0})


async def test_more_urgent_prompt_begins_beside_what_runs_and_goes_first_among_what_waits(
    engine: Engine,
) -> None:
    sent = [(await send(engine, ALICE, priority=priority)).prompt_id for priority in (0, 0, 0, 0, 4, 4, 9)]
    assert [record.prompt_id for record in engine.running(ALICE)] == [
        sent[0],
        sent[1],
        sent[2],
        sent[4],
        sent[6],
    ]
    assert [record.prompt_id for record in engine.pending(ALICE)] == [sent[5], sent[3]]


async def test_urgent_prompts_keep_the_limit_and_their_priority_over_a_restart(
    engine: Engine, source: FixedAccounts
) -> None:
    source.change(Account(ALICE, limits=Limits(max_running=1)), Account(BOB))
    sent = [(await send(engine, ALICE, priority=priority)).prompt_id for priority in (0, 0, 5)]
    assert [record.prompt_id for record in engine.running(ALICE)] == sent[:1]
    await engine.stop()
    again = Engine(engine._config, engine._tenants)
    assert [record.prompt_id for record in again.pending(ALICE)] == [sent[2], sent[0], sent[1]]
    await again.stop()


async def test_with_one_queue_prompts_of_all_begin_in_order_of_arrival(engine: Engine) -> None:
    await engine.stop()
    config = replace(engine._config, policy="fifo", database="memory")
    single = Engine(config, engine._tenants)
    for tenant in (ALICE, ALICE, BOB, BOB, ALICE):
        await send(single, tenant)
    assert (len(single.running(ALICE)), len(single.running(BOB))) == (2, 1)
    assert single.interrupt(None, BOB)
    await turn_until(lambda: len(single.running(BOB)) == 1 and not single.pending(BOB))
    assert single.interrupt(None, BOB)
    await turn_until(lambda: not single.remaining(BOB))
    assert len(single.running(ALICE)) == 3
    await single.stop()


async def test_full_queue_refuses_for_now_and_leaves_no_record(engine: Engine, source: FixedAccounts) -> None:
    source.change(Account(ALICE, limits=Limits(max_queued=1, max_running=1)), Account(BOB))
    await send(engine, ALICE)
    await send(engine, ALICE)
    refused = await send(engine, ALICE)
    assert refused.error is not None
    assert refused.error["type"] == "queue_full"
    assert (refused.prompt_id, (refused.retry_after_s or 0) > 0) == (None, True)
    assert engine.remaining(ALICE) == 2
    assert (await send(engine, BOB)).error is None


async def test_used_up_gpu_seconds_stop_what_is_sent_and_what_waits_but_nothing_that_runs(
    engine: Engine, source: FixedAccounts
) -> None:
    source.change(Account(ALICE, limits=Limits(max_gpu_s_per_day=1.0)), Account(BOB))
    for _ in range(4):
        await send(engine, ALICE)
    engine.book.on_stay(measured(tenant=ALICE))
    refused = await send(engine, ALICE)
    assert refused.error is not None
    assert refused.error["type"] == "gpu_seconds_used_up"
    assert 0 < (refused.retry_after_s or 0) <= 86_400
    assert engine.usage(ALICE).today_s["gpu"] == 1.75
    running = engine.running(ALICE)
    assert engine.interrupt(running[0].prompt_id, ALICE)
    assert (await send(engine, BOB)).error is None
    async with asyncio.timeout(60):
        while True:
            if len(engine.running(ALICE)) < len(running):
                break
            await asyncio.sleep(0)
    assert (engine.running(ALICE), len(engine.pending(ALICE))) == (running[1:], 1)


async def test_numbers_of_a_tenant_do_not_count_those_of_others(engine: Engine) -> None:
    numbers = [(await send(engine, tenant)).number for tenant in (ALICE, ALICE, BOB, ALICE)]
    assert numbers == [0, 1, 0, 2]


async def test_equal_prompt_ids_of_two_tenants_are_two_prompts(engine: Engine) -> None:
    shared = str(uuid.uuid4())
    assert (await send(engine, ALICE, shared)).error is None
    assert await engine.find(PromptId(shared), BOB) is None
    assert (await send(engine, BOB, shared)).error is None
    assert engine.interrupt(PromptId(shared), BOB)
    await idle(engine, BOB)
    assert [record.status for record in await engine.history(BOB, count=9)] == [RunStatus.INTERRUPTED]
    assert [record.status for record in engine.running(ALICE)] == [RunStatus.RUNNING]


async def test_tenant_that_is_stopped_has_nothing_left(engine: Engine) -> None:
    for tenant in (ALICE, BOB) * 4:
        await send(engine, tenant)
    assert set(engine.busy_tenants()) == {ALICE, BOB}
    engine.stop_tenant(ALICE)
    await idle(engine, ALICE)
    assert engine.busy_tenants() == [BOB]
    assert engine.remaining(BOB) == 4


async def test_weight_of_an_account_is_shown_as_it_is_now(engine: Engine, source: FixedAccounts) -> None:
    source.change(replace(Account(ALICE), weight=2.5), Account(BOB))
    assert engine.usage(ALICE).weight == 2.5


async def test_stopping_engine_accepts_nothing_and_leaves_what_waits_to_the_next_one(
    engine: Engine, source: FixedAccounts
) -> None:
    source.change(Account(ALICE, limits=Limits(max_running=1)), Account(BOB))
    sent = [(await send(engine, ALICE)).prompt_id for _ in range(3)]
    ended = await send(engine, BOB)
    assert engine.interrupt(None, BOB)
    await idle(engine, BOB)
    await engine.drain(0)
    with pytest.raises(CapacityError, match="stopping"):
        await send(engine, BOB)
    await engine.stop()
    again = Engine(engine._config, engine._tenants)
    assert [record.prompt_id for record in again.pending(ALICE)] == sent
    assert [record.prompt_id for record in await again.history(BOB, count=9)] == [ended.prompt_id]
    assert (await send(again, ALICE)).number == 3
    assert again.running(ALICE) == [], "nothing of the last server begins before there is a worker"
    await again.stop()


async def test_prompt_that_cannot_run_any_more_ends_with_the_reason(engine: Engine, tmp_path: Path) -> None:
    prompt_id = (await send(engine, ALICE)).prompt_id
    await engine.drain(0)
    await engine.stop()
    (tmp_path / "input" / ALICE / "a.png").unlink()
    again = Engine(engine._config, engine._tenants)
    told: list[Notice] = []
    again.subscribe(told.append)
    again._pool.has_joined.set()
    again._runs.start()
    await idle(again, ALICE)
    (record,) = await again.history(ALICE, count=9)
    assert (record.prompt_id, record.status) == (prompt_id, RunStatus.ERROR)
    failed = record.messages[-1]
    assert isinstance(failed, RunFailed)
    assert "accepted earlier and cannot run any more" in failed.exception_message
    assert [type(notice).__name__ for notice in told][-3:] == ["RunFailed", "QueueChanged", "RunEnded"]
    await again.stop()


async def test_user_interrupt_is_history_even_if_the_server_stops_at_once(engine: Engine) -> None:
    await send(engine, ALICE)
    assert engine.interrupt(None, ALICE)
    await engine.stop()
    again = Engine(engine._config, engine._tenants)
    assert again.pending(ALICE) == []
    assert [record.status for record in await again.history(ALICE, count=9)] == [RunStatus.INTERRUPTED]
    await again.stop()


async def test_weights_are_freed_when_what_ran_has_ended_though_others_have_begun(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[str] = []
    monkeypatch.setattr(engine._pool, "unload_models", lambda: freed.append("weights"))
    monkeypatch.setattr(engine._caches, "clear", lambda tenant=None: tenant or freed.append("results"))
    engine.free(unload_models=True, free_memory=False)
    assert freed == ["weights"]
    first, second = [(await send(engine, tenant)).prompt_id for tenant in (ALICE, BOB)]
    engine.free(unload_models=True, free_memory=False)
    engine.free(unload_models=False, free_memory=True)
    later = (await send(engine, BOB)).prompt_id
    engine.interrupt(first, ALICE)
    await idle(engine, ALICE)
    assert freed == ["weights"]
    engine.interrupt(second, BOB)
    await turn_until(lambda: len(freed) > 1)
    assert freed == ["weights", "weights", "results"]
    assert [record.prompt_id for record in engine.running(BOB)] == [later]


async def test_engine_whose_parts_cannot_be_stopped_leaves_nothing_behind(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise OSError("no more")

    folder = engine._scratch.folder
    monkeypatch.setattr(engine._pool, "stop", fail)
    monkeypatch.setattr(engine.hosting, "stop", fail)
    with pytest.raises(OSError, match="no more"):
        await engine.stop()
    assert not list(folder.parent.glob(f"{engine._scratch.tag}*"))


async def test_engine_that_is_stopped_while_it_starts_starts_nothing_more(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async def start() -> None:
        started.append("workers")

    started: list[str] = []
    monkeypatch.setattr(engine.hosting, "start", never)
    monkeypatch.setattr(engine._pool, "start", start)
    starting = asyncio.create_task(engine.start())
    await asyncio.sleep(0)
    await engine.stop()
    assert (starting.cancelled(), started) == (True, [])
