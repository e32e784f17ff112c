"""Over a limit prompts are refused with the reason and the time to come back, and what waits is held back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from comfyserverless.control.accounts.account import Account, Limits
from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.control.accounts.tenants import Tenants
from comfyserverless.control.files import FolderPaths
from comfyserverless.control.metering import limits as limits_module
from comfyserverless.control.metering.limits import Admission, counted_lanes
from comfyserverless.control.records.queue import PromptQueue
from comfyserverless.core.config import Folders
from comfyserverless.core.ids import TenantId
from tests.support.records import waiting
from tests.support.tenants import FixedAccounts
from tests.support.usage import DAY_MS, Books, measured

ALICE, BOB = TenantId("alice"), TenantId("bob")


class Gate:
    """What admission decides by: accounts, a queue, and what was used."""

    def __init__(self, base: Path) -> None:
        self.source = FixedAccounts(Account(ALICE), Account(BOB))
        folders = Folders(base, (), *(base / name for name in ("i", "o", "t", "u", "c")))
        self.queue = PromptQueue()
        self.books = Books()
        tenants = Tenants(FolderPaths(folders), AccountBook(self.source))
        self.admission = Admission(tenants, self.queue, self.books.book, self.books.clock)

    def limit(self, limits: Limits) -> None:
        self.source.change(Account(ALICE, limits=limits), Account(BOB))

    def use(self, tenant: TenantId = ALICE, lane: str = "gpu") -> None:
        """Let a tenant use 1.75 seconds."""
        self.books.book.on_stay(measured(tenant=tenant, lane=lane))

    def room(self, tenant: TenantId = ALICE) -> int:
        return self.admission.room(tenant, 3, lambda: None)


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Gate]:
    made = Gate(tmp_path)
    yield made
    made.admission.close()
    made.books.stop()


async def test_gpu_seconds_of_a_day_end_what_may_be_sent_until_midnight(gate: Gate) -> None:
    gate.limit(Limits(max_gpu_s_per_day=3.5))
    gate.books.clock.now_ms += DAY_MS - 90_500
    for lane, is_refused in (("gpu", False), ("cpu", False), ("gpu", True)):
        gate.use(lane=lane)
        assert (gate.admission.refusal(ALICE, 7) is not None) is is_refused
    refused = gate.admission.refusal(ALICE, 7)
    assert refused is not None
    assert refused.error is not None
    assert (refused.prompt_id, refused.number, refused.retry_after_s) == (None, 7, 91)
    assert refused.error.keys() == {"type", "message", "details", "extra_info"}
    assert refused.error["type"] == "gpu_seconds_used_up"
    assert "3.5 of 3.5 GPU seconds" in refused.error["details"]
    assert "2024-10-05 00:00 UTC, in 91 s" in refused.error["details"]
    gate.use(BOB)
    assert gate.admission.refusal(BOB, 7) is None
    gate.books.clock.now_ms += 90_500
    assert gate.admission.refusal(ALICE, 7) is None


async def test_what_waits_is_held_back_until_the_limit_is_raised_or_the_day_is_over(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits_module, "_LOOK_AGAIN_S", 0.01)
    gate.limit(Limits(max_gpu_s_per_day=1.0, max_running=2))
    gate.queue.add(waiting("a", tenant=ALICE), None)
    assert (gate.room(), gate.room(BOB)) == (2, 3)
    gate.use()
    looks = asyncio.Event()
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert gate.admission.room(ALICE, 3, looks.set) == 0
    assert len(caplog.records) == 1
    assert "alice" in caplog.text
    await asyncio.wait_for(looks.wait(), 60)
    gate.limit(Limits(max_gpu_s_per_day=10.0))
    assert gate.room() == 3
    gate.limit(Limits(max_gpu_s_per_day=1.0))
    assert gate.room() == 0
    gate.books.clock.now_ms += DAY_MS
    assert gate.room() == 3


async def test_full_queue_is_told_before_used_up_seconds(gate: Gate) -> None:
    gate.limit(Limits(max_queued=1, max_gpu_s_per_day=1.0))
    gate.use()
    gate.queue.add(waiting("a", tenant=ALICE), None)
    refused = gate.admission.refusal(ALICE, 0)
    assert refused is not None
    assert refused.error is not None
    assert (refused.error["type"], refused.retry_after_s) == ("queue_full", 5)


@pytest.mark.parametrize(
    ("gpus", "flags", "is_refused"), [(1, {}, True), (1, {"cpu": True}, False), (0, {}, False)]
)
async def test_seconds_of_packs_count_where_they_may_compute_on_a_gpu(
    gate: Gate, gpus: int, flags: dict[str, object], is_refused: bool
) -> None:
    gate.admission = Admission(
        gate.admission.tenants,
        gate.queue,
        gate.books.book,
        gate.books.clock,
        counted_lanes(gpus, flags),
    )
    gate.limit(Limits(max_gpu_s_per_day=3.5))
    for lane in ("pack", "async", "gpu"):
        assert gate.admission.refusal(ALICE, 1) is None
        gate.use(lane=lane)
    assert (gate.admission.refusal(ALICE, 1) is not None) is is_refused
