"""Every accepted webhook is called once its prompt has ended, and nothing else ever is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from comfyserverless.control.views import RunEnded, RunRecord, RunStatus
from comfyserverless.control.webhooks import webhooks as module
from comfyserverless.control.webhooks.courier import Courier
from comfyserverless.control.webhooks.outbox import Call, Outbox
from comfyserverless.control.webhooks.reach import Reach
from comfyserverless.control.webhooks.signing import TenantSecrets
from comfyserverless.control.webhooks.target import Target
from comfyserverless.control.webhooks.webhooks import Surroundings, Webhooks
from comfyserverless.core.ids import PromptId, TenantId
from tests.support.records import ended, waiting
from tests.support.webhooks import Receiver, is_signed

TENANT = TenantId("default")


@dataclass
class Prompts:
    """Hold prompts as the engine does."""

    records: dict[PromptId, RunRecord] = field(default_factory=dict)
    settlings: int = 0

    async def find(self, prompt_id: PromptId, tenant: TenantId) -> RunRecord | None:
        record = self.records.get(prompt_id)
        return record if record is not None and record.tenant == tenant else None

    async def settled(self) -> None:
        self.settlings += 1

    def add(self, name: str, tenant: TenantId = TENANT) -> RunRecord:
        record = self.records[PromptId(name)] = waiting(name, tenant=tenant)
        return record


@dataclass
class World:
    """One server's webhooks after another, over the same disk and prompts."""

    folder: Path
    prompts: Prompts = field(default_factory=Prompts)
    ended_accounts: set[TenantId] = field(default_factory=set)
    hooks: Webhooks | None = None

    async def start(self, reach: Reach | None = None) -> Webhooks:
        around = Surroundings(
            self.prompts, lambda record: record.prompt_id.encode(), lambda t: t not in self.ended_accounts
        )
        courier = Courier(reach or Reach(is_open=True), TenantSecrets(self.folder))
        self.hooks = Webhooks(Outbox(self.folder / "outbox.sqlite3"), courier, around)
        await self.hooks.start()
        return self.hooks

    async def stop(self) -> None:
        if self.hooks is not None:
            await self.hooks.stop()
            self.hooks = None

    def end(self, record: RunRecord, status: RunStatus = RunStatus.SUCCESS) -> None:
        """Let a prompt end and tell of it."""
        assert self.hooks is not None
        ended(record, status=status)
        self.hooks.on_notice(RunEnded(record.prompt_id, record.tenant, record.client_id))

    async def left(self) -> int:
        """Count the calls on the disk."""
        outbox = Outbox(self.folder / "outbox.sqlite3")
        try:
            return len(await outbox.load())
        finally:
            outbox.close()

    async def is_empty(self) -> bool:
        return await self.left() == 0


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    await made.stop()


@pytest.fixture
async def start_receiver() -> AsyncIterator[Callable[..., Awaitable[tuple[Receiver, Target]]]]:
    started: list[Receiver] = []

    async def start(**fields: object) -> tuple[Receiver, Target]:
        receiver = Receiver(**fields)  # type: ignore[arg-type]
        started.append(receiver)
        return receiver, Target(await receiver.start())

    yield start
    for receiver in started:
        await receiver.stop()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSES_S", (0.02, 0.02))


StartReceiver = Callable[..., Awaitable[tuple[Receiver, Target]]]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0.01)


async def test_call_is_made_once_and_signed_after_the_record_is_stored(
    world: World, start_receiver: StartReceiver
) -> None:
    receiver, target = await start_receiver()
    hooks = await world.start()
    record = world.prompts.add("one")
    await hooks.expect(TENANT, record.prompt_id, target)
    assert await world.left() == 1
    assert not receiver.calls
    world.end(record)
    world.end(record)
    await receiver.wait_for(1)
    headers, body = receiver.calls[0]
    assert body == b"one"
    assert headers["Content-Type"] == "application/json"
    assert is_signed(headers, body, TenantSecrets(world.folder).secret_of(TENANT))
    assert world.prompts.settlings == 1
    await until(world.is_empty)


async def test_prompt_that_ends_while_its_call_is_written_down_is_called_for_once(
    world: World, start_receiver: StartReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, target = await start_receiver()
    hooks = await world.start()
    record = world.prompts.add("one")
    add = Outbox.add

    async def end_meanwhile(outbox: Outbox, call: Call) -> None:
        world.end(record)
        await add(outbox, call)

    monkeypatch.setattr(Outbox, "add", end_meanwhile)
    await hooks.expect(TENANT, record.prompt_id, target)
    await receiver.wait_for(1)
    await until(world.is_empty)
    await asyncio.sleep(0.05)
    assert len(receiver.calls) == world.prompts.settlings == 1
    assert len(receiver.calls) == 1


async def test_secret_of_the_prompt_signs_instead_of_the_tenants(
    world: World, start_receiver: StartReceiver
) -> None:
    receiver, target = await start_receiver()
    hooks = await world.start()
    record = world.prompts.add("one")
    await hooks.expect(TENANT, record.prompt_id, Target(target.url, "my own secret"))
    world.end(record)
    await receiver.wait_for(1)
    assert is_signed(*receiver.calls[0], "my own secret")


async def test_prompt_that_has_ended_before_it_is_followed_is_called_too(
    world: World, start_receiver: StartReceiver
) -> None:
    receiver, target = await start_receiver()
    hooks = await world.start()
    record = ended(world.prompts.add("quick"))
    await hooks.expect(TENANT, record.prompt_id, target)
    await receiver.wait_for(1)


@pytest.mark.parametrize("status", [500, 503, 429, 408])
async def test_call_that_fails_is_repeated_with_the_same_id(
    world: World, start_receiver: StartReceiver, status: int
) -> None:
    receiver, target = await start_receiver(statuses=(status, status, 200))
    hooks = await world.start()
    record = world.prompts.add("one")
    await hooks.expect(TENANT, record.prompt_id, target)
    world.end(record)
    await receiver.wait_for(3)
    assert len({headers["X-Comfyserverless-Delivery"] for headers, _ in receiver.calls}) == 1
    assert {body for _, body in receiver.calls} == {b"one"}
    await until(world.is_empty)


async def test_call_that_always_fails_is_given_up_and_the_log_hides_its_path(
    world: World, start_receiver: StartReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    receiver, target = await start_receiver(statuses=(500,))
    hooks = await world.start()
    record = world.prompts.add("one")
    await hooks.expect(TENANT, record.prompt_id, target)
    world.end(record)
    await until(world.is_empty)
    assert len(receiver.calls) == 3
    assert "given up after 3 attempts" in caplog.text
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("comfyserverless")]
    assert len(ours) == 4
    assert "hidden" not in "".join(ours)


@pytest.mark.parametrize("status", [301, 307, 400, 404, 410])
async def test_redirects_and_refusals_are_final(
    world: World, start_receiver: StartReceiver, status: int
) -> None:
    other, elsewhere = await start_receiver()
    receiver, target = await start_receiver(statuses=(status,), headers={"Location": elsewhere.url})
    hooks = await world.start()
    record = world.prompts.add("one")
    await hooks.expect(TENANT, record.prompt_id, target)
    world.end(record)
    await until(world.is_empty)
    assert (len(receiver.calls), len(other.calls)) == (1, 0)


async def test_nobody_who_listens_is_tried_again_until_given_up(world: World, unused_tcp_port: int) -> None:
    hooks = await world.start()
    record = world.prompts.add("one")
    await hooks.expect(TENANT, record.prompt_id, Target(f"http://127.0.0.1:{unused_tcp_port}/"))
    world.end(record)
    await until(world.is_empty)


async def test_address_that_may_not_be_called_is_not(world: World, start_receiver: StartReceiver) -> None:
    receiver, target = await start_receiver()
    hooks = await world.start(Reach())
    name = target.url.replace("127.0.0.1", "localhost")
    for index, url in enumerate((target.url, name)):
        record = world.prompts.add(str(index))
        await hooks.expect(TENANT, record.prompt_id, Target(url))
        world.end(record)
    await until(world.is_empty)
    assert not receiver.calls


async def test_calls_survive_the_server_wherever_it_ended(world: World, start_receiver: StartReceiver) -> None:
    receiver, target = await start_receiver(statuses=(500, 200))
    hooks = await world.start()
    records = {name: world.prompts.add(name) for name in ("ends", "waits", "ended", "gone")}
    for record in records.values():
        await hooks.expect(TENANT, record.prompt_id, target)
    world.end(records["ends"])
    await receiver.wait_for(1)
    await world.stop()
    ended(records["ended"])
    del world.prompts.records[PromptId("gone")]
    await world.start()
    await receiver.wait_for(3)
    assert sorted(body for _, body in receiver.calls) == [b"ended", b"ends", b"ends"]
    world.end(records["waits"])
    await receiver.wait_for(4)
    await until(world.is_empty)


async def test_dropped_prompt_is_never_called_not_even_by_the_next_of_its_id(
    world: World, start_receiver: StartReceiver
) -> None:
    receiver, target = await start_receiver()
    hooks = await world.start()
    dropped = world.prompts.add("one")
    await hooks.expect(TENANT, dropped.prompt_id, target)
    again = world.prompts.add("one")
    ended(again)
    hooks.on_notice(RunEnded(again.prompt_id, again.tenant, None))
    await until(world.is_empty)
    swept = world.prompts.add("two")
    await hooks.expect(TENANT, swept.prompt_id, target)
    del world.prompts.records[swept.prompt_id]
    await hooks._sweep()
    await until(world.is_empty)
    assert not receiver.calls


async def test_prompt_of_a_reused_id_has_its_own_call(world: World, start_receiver: StartReceiver) -> None:
    (old, old_target), (new, new_target) = await start_receiver(), await start_receiver()
    hooks = await world.start()
    await hooks.expect(TENANT, world.prompts.add("one").prompt_id, old_target)
    again = world.prompts.add("one")
    await hooks.expect(TENANT, again.prompt_id, new_target)
    world.end(again)
    await new.wait_for(1)
    await until(world.is_empty)
    assert not old.calls


async def test_slow_receiver_of_one_tenant_holds_up_no_other(
    world: World, start_receiver: StartReceiver
) -> None:
    slow, slow_target = await start_receiver(gate=asyncio.Event())
    quick, quick_target = await start_receiver()
    hooks = await world.start()
    for index in range(12):
        record = world.prompts.add(f"slow{index}", TenantId("slow"))
        await hooks.expect(record.tenant, record.prompt_id, slow_target)
        world.end(record)
    record = world.prompts.add("quick")
    await hooks.expect(TENANT, record.prompt_id, quick_target)
    await slow.wait_for(4)
    world.end(record)
    await quick.wait_for(1)
    assert (slow.busy, slow.most_busy) == (4, 4)


async def test_calls_of_an_account_that_ended_are_not_made(world: World, start_receiver: StartReceiver) -> None:
    receiver, target = await start_receiver()
    hooks = await world.start()
    record = world.prompts.add("one")
    await hooks.expect(TENANT, record.prompt_id, target)
    world.ended_accounts.add(TENANT)
    world.end(record)
    await until(world.is_empty)
    assert not receiver.calls


async def test_calls_beyond_the_limit_of_a_tenant_are_not_made(
    world: World, start_receiver: StartReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_DUE", 2)
    gate = asyncio.Event()
    receiver, target = await start_receiver(gate=gate)
    hooks = await world.start()
    for index in range(5):
        record = world.prompts.add(str(index))
        await hooks.expect(TENANT, record.prompt_id, target)
        world.end(record)
    await receiver.wait_for(2)
    gate.set()
    await until(world.is_empty)
    assert len(receiver.calls) == 2


async def test_full_disk_delays_nothing_and_the_call_is_still_made(
    world: World, start_receiver: StartReceiver
) -> None:
    receiver, target = await start_receiver()
    (world.folder / "outbox.sqlite3").mkdir()
    hooks = await world.start()
    record = world.prompts.add("one")
    await hooks.expect(TENANT, record.prompt_id, target)
    world.end(record)
    await receiver.wait_for(1)
