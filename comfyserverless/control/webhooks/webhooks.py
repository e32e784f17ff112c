"""Follow the prompts that have a webhook, and see to it that each call is made once they have ended.

A call is kept on disk before its submission is answered, and repeated with growing pauses until it is
answered with 2xx, refused for good, or given up. It may be made twice if the server dies right after it; its
id tells. Nothing here ever holds up or fails a prompt.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Protocol

from comfyserverless.control.describing import now_ms
from comfyserverless.control.views import Notice, RunEnded, RunRecord, RunStatus
from comfyserverless.control.webhooks.courier import Courier, Outcome
from comfyserverless.control.webhooks.outbox import Call, Outbox
from comfyserverless.control.webhooks.target import Target
from comfyserverless.core.errors import CapacityError
from comfyserverless.core.ids import PromptId, TenantId

log = logging.getLogger(__name__)

PAUSES_S = (2.0, 10.0, 60.0, 300.0, 1800.0)
"""Between attempts: six in all, within about 36 minutes."""

MAX_DUE = 1_000
"""Calls of one tenant that are due; those of prompts that end beyond it are not made."""

_AT_ONCE = 16
_AT_ONCE_PER_TENANT = 4
_SWEEP_S = 30.0
_JITTER_RATIO = 0.2

_Key = tuple[TenantId, PromptId]


class PromptSource(Protocol):
    """Where prompts are: the engine."""

    async def find(self, prompt_id: PromptId, tenant: TenantId) -> RunRecord | None:
        """Return a prompt in any state; does not wait for one that waits or runs."""

    async def settled(self) -> None:
        """Wait until what was done before is on disk."""


@dataclass(frozen=True, slots=True)
class _Expected:
    """A call that waits for its prompt, whose record the engine fills."""

    call: Call
    record: RunRecord


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What calls need: prompts, the body for an ended one, and whether a tenant still has an account."""

    prompts: PromptSource
    describe: Callable[[RunRecord], bytes]
    has_account: Callable[[TenantId], bool]


class Webhooks:
    """Own all calls of a server, from the submission of a prompt to the last attempt."""

    def __init__(self, outbox: Outbox, courier: Courier, surroundings: Surroundings) -> None:
        self._outbox = outbox
        self._courier = courier
        self._around = surroundings
        #: all and only calls whose prompts are not known to have ended.
        self._expected: dict[_Key, _Expected] = {}
        #: how many calls each tenant has that are due.
        self._due: defaultdict[TenantId, int] = defaultdict(int)
        self._tasks: set[asyncio.Task[None]] = set()
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._gates: defaultdict[TenantId, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_AT_ONCE_PER_TENANT)
        )

    async def start(self) -> None:
        """Take over the calls that an earlier server has left."""
        try:
            for call in await self._outbox.load():
                if call.due_ms is not None:
                    self._due[call.tenant] += 1
                    self._begin(call)
                else:
                    await self._follow(call)
        except CapacityError as exc:
            log.error("Webhooks of the last run are not called: %s", exc)
        self._spawn(self._sweep_again_and_again())

    async def stop(self) -> None:
        """Stop; calls that are not made yet are left to the next server."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._courier.close()
        await asyncio.to_thread(self._outbox.close)

    async def expect(self, tenant: TenantId, prompt_id: PromptId, target: Target) -> None:
        """Call a target when a prompt that was accepted just now has ended; on disk when this returns."""
        call = Call(uuid.uuid4().hex, tenant, prompt_id, target)
        former = self._expected.pop((tenant, prompt_id), None)  # of a prompt of that id that was dropped
        await self._follow(call, is_new=True)
        if former is not None:
            await self._forget(former.call)

    def on_notice(self, notice: Notice) -> None:
        """See prompts end; listener of the engine."""
        if isinstance(notice, RunEnded):
            expected = self._expected.pop((notice.tenant, notice.run), None)
            if expected is not None:
                self._spawn(self._finish(expected))

    async def _follow(self, call: Call, *, is_new: bool = False) -> None:
        """Wait for the prompt of a call, if it has not ended; forget the call if there is none."""
        record = await self._around.prompts.find(call.prompt_id, call.tenant)
        if record is None:
            if not is_new:
                await self._forget(call)
            return
        key, expected = (call.tenant, call.prompt_id), _Expected(call, record)
        self._expected[key] = expected  # until whoever sees the end first takes it out
        if is_new:
            try:
                await self._outbox.add(call)
            except CapacityError as exc:  # the prompt is accepted: better called without that than not at all
                log.warning("The webhook of prompt %s would not survive this server: %s", call.prompt_id, exc)
        if record.ended_ms is not None and self._expected.get(key) is expected:
            del self._expected[key]
            self._spawn(self._finish(expected))

    async def _finish(self, expected: _Expected) -> None:
        """Make a call due: its prompt has ended."""
        call, record = expected.call, expected.record
        if record.ended_ms is None:  # another prompt of that id has; this one was dropped
            await self._forget(call)
            return
        if self._due[call.tenant] >= MAX_DUE:
            log.warning(
                "The webhook of prompt %s is not called: %d of its tenant are due", call.prompt_id, MAX_DUE
            )
            await self._forget(call)
            return
        self._due[call.tenant] += 1
        due = call.due(now_ms())
        body = self._around.describe(record)
        await self._around.prompts.settled()  # who is called may ask for the record at once
        try:
            await self._outbox.set_body(due, body)
        except CapacityError as exc:
            log.warning("The webhook of prompt %s is tried only now: %s", call.prompt_id, exc)
        self._begin(due, body)

    def _begin(self, call: Call, body: bytes | None = None) -> None:
        """Try a call that is counted as due."""
        task = self._spawn(self._deliver(call, body))
        task.add_done_callback(lambda _: self._let_go(call.tenant))

    def _let_go(self, tenant: TenantId) -> None:
        self._due[tenant] -= 1
        if not self._due[tenant]:
            del self._due[tenant]
            self._gates.pop(tenant, None)

    async def _deliver(self, call: Call, body: bytes | None) -> None:
        """Try a call until it is made or given up. body: None to read it."""
        while True:
            await asyncio.sleep(max(0, (call.due_ms or 0) - now_ms()) / 1000)
            try:
                outcome = await self._attempt(call, body)
            except CapacityError:
                outcome = Outcome.FAILED
            body = None  # it may wait for long: the next attempt reads it again
            attempts = call.attempts + 1
            if outcome is not Outcome.FAILED or attempts > len(PAUSES_S):
                break
            pause_s = PAUSES_S[attempts - 1] * random.uniform(1, 1 + _JITTER_RATIO)
            call = call.due(now_ms() + round(pause_s * 1000), attempts)
            try:
                await self._outbox.postpone(call)
            except CapacityError as exc:
                log.warning("An attempt at the webhook of prompt %s is not noted: %s", call.prompt_id, exc)
        if outcome is not Outcome.DELIVERED:
            log.warning("The webhook of prompt %s is given up after %d attempts", call.prompt_id, attempts)
        await self._forget(call)

    async def _attempt(self, call: Call, body: bytes | None) -> Outcome:
        if not self._around.has_account(call.tenant):
            return Outcome.REFUSED
        async with self._gates[call.tenant], self._gate:
            content = await self._outbox.body(call) if body is None else body
            return Outcome.REFUSED if content is None else await self._courier.attempt(call, content)

    async def _forget(self, call: Call) -> None:
        try:
            await self._outbox.remove(call)
        except CapacityError as exc:
            log.warning("The webhook of prompt %s may be called again: %s", call.prompt_id, exc)

    async def _sweep_again_and_again(self) -> None:
        """Forget calls whose prompts were dropped from the queue, which nothing else tells."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            await self._sweep()

    async def _sweep(self) -> None:
        for key, expected in list(self._expected.items()):
            if expected.record.status is not RunStatus.PENDING:
                continue
            found = await self._around.prompts.find(key[1], key[0])
            if found is not expected.record and self._expected.get(key) is expected:
                del self._expected[key]
                await self._forget(expected.call)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="webhook")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
