"""What Prometheus reads after things have happened."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from comfyserverless.control.metering.measured import Measured, Meter
from comfyserverless.control.metrics.labels import OTHER
from comfyserverless.control.metrics.metrics import Metrics
from comfyserverless.control.metrics.state import Sight
from comfyserverless.control.records.queue import PromptQueue
from comfyserverless.control.views import (
    NodesCached,
    NodeStarted,
    RecoveryView,
    RunFailed,
    RunInterrupted,
    RunRecord,
    RunStarted,
    RunSucceeded,
    WorkerView,
)
from comfyserverless.core.ids import InvocationId, NodeId, PromptId, TenantId, WorkerId
from comfyserverless.core.memory import (
    ArenaMemory,
    DeviceMemory,
    HostMemory,
    MemoryCounters,
    MemoryPicture,
)
from comfyserverless.core.messages import Timing
from comfyserverless.scheduling.events import InvocationSpec, InvocationSubmitted, WorkerJoined
from comfyserverless.scheduling.instructions import RecordService
from comfyserverless.scheduling.state import SchedulingConfig, SchedulingState

ALICE, BOB = TenantId("alice"), TenantId("bob")
P1 = PromptId("p1")
MEMORY = MemoryPicture(
    DeviceMemory(1000, 700, 0),
    HostMemory(500, 400, 1),
    ArenaMemory(4096, 1024, 2, 2048),
    MemoryCounters(
        resident_layers=9, host_layers=4, disk_layers=3, made_layers=1, host_bytes=40, disk_bytes=30
    ),
    (),
    0,
    0.002,
)
WORKER = WorkerView(
    "w0", "w0.1", 7, "busy", 1, "cpu", "cpu", None, 9000, 8000, 300, 1024, 4096, 700, ("i1",), "2", MEMORY
)
LOST = WorkerView("w1", "w1.0", None, "lost", 0, "", "cpu", None, 0, 0, 0, 0, 0, 0, (), "")


def spec(tenant: TenantId, function: str = "denoise.step", name: str = "i1") -> InvocationSpec:
    return InvocationSpec(InvocationId(name), P1, tenant, NodeId("3"), function, "gpu", "key")


def stay(tenant: TenantId = ALICE, function: str = "denoise.step", outcome: str = "done") -> Measured:
    timing = Timing(load_s=0.2, compute_s=1.5, transfer_s=0.002)
    return Measured(
        spec(tenant, function),
        WorkerId("w0.0"),
        outcome,  # type: ignore[arg-type]
        queued_s=0.3,
        held_s=1.8,
        timing=timing,
        charged_s=timing.total_s(),
        ended_s=9.0,
    )


class Watched:
    """Metrics with what they look at."""

    def __init__(self) -> None:
        self.meter = Meter()
        self.queue = PromptQueue()
        self.state = SchedulingState(SchedulingConfig(slack_s=2.0))
        self.workers = [WORKER, LOST]
        self.metrics = Metrics(lambda: [ALICE, BOB], self.meter, self.queue.find, self._look)

    def _look(self) -> Sight:
        recovery = RecoveryView(2, 5, 1, 1, 100, 4)
        return Sight(self.queue, self.state, self.workers, recovery, True, 20_000)

    def record(self, name: str = "p1", tenant: TenantId = ALICE) -> RunRecord:
        record = RunRecord(PromptId(name), tenant, 0.0, {}, {}, (), None, created_ms=5_000)
        self.queue.add(record, None)
        return record

    async def read(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        body, content_type = await self.metrics.render("")
        assert content_type.startswith("text/plain; version=")
        return {
            (sample.name.removeprefix("comfyserverless_"), frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }


@pytest.fixture
def watched() -> Watched:
    return Watched()


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


async def test_stays_are_counted_and_their_phases_measured(watched: Watched) -> None:
    tell = told(watched.meter)
    tell(stay())
    tell(stay(BOB))
    tell(stay(function="no.such", outcome="failed"))
    tell(stay(outcome="lost"))
    found = await watched.read()
    assert found[key("invocations_total", function="denoise.step", outcome="done")] == 2
    assert found[key("invocations_total", function="denoise.step", outcome="lost")] == 1
    assert found[key("invocations_total", function=OTHER, outcome="failed")] == 1
    assert found[key("service_seconds_total", tenant="bob", lane="gpu")] == pytest.approx(1.702)
    step = {"function": "denoise.step"}
    assert found[key("invocation_compute_seconds_count", **step)] == 2  # of the lost one nobody knows
    assert found[key("invocation_compute_seconds_sum", **step)] == 3.0
    assert found[key("invocation_compute_seconds_bucket", le="1.0", **step)] == 0
    assert found[key("invocation_compute_seconds_bucket", le="2.5", **step)] == 2
    assert found[key("invocation_load_seconds_sum", **step)] == pytest.approx(0.4)
    assert found[key("invocation_queued_seconds_sum", **step)] == pytest.approx(0.6)
    assert found[key("invocation_transfer_seconds_sum", **step)] == pytest.approx(0.004)


def told(meter: Meter) -> Callable[[Measured], None]:
    """Return what makes a meter tell of a stay."""

    def tell(each: Measured) -> None:
        service = RecordService(
            each.spec.id,
            each.worker,
            each.outcome,
            each.queued_s,
            each.held_s,
            each.timing,
            each.charged_s,
            "test",
        )
        meter.record(each.spec, service, each.ended_s)

    return tell


async def test_prompts_are_counted_by_how_they_end_with_their_waits(watched: Watched) -> None:
    record = watched.record()
    watched.queue.take(ALICE)
    record.started_ms = 7_500
    who = (P1, ALICE, None)
    watched.metrics.on_notice(RunStarted(*who, 7_500))
    watched.metrics.on_notice(NodesCached(*who, (NodeId("1"), NodeId("2")), 7_500))
    watched.metrics.on_notice(NodeStarted(*who, NodeId("3")))
    watched.metrics.on_notice(RunSucceeded(*who, 9_500))
    watched.queue.end(record)
    watched.metrics.on_notice(RunInterrupted(PromptId("gone"), BOB, None, NodeId("3"), "KSampler", (), 9_500))
    watched.metrics.on_notice(
        RunFailed(
            PromptId("gone"), TenantId("stranger"), None, NodeId("3"), "KSampler", (), "", "", (), {}, (), 9_500
        )
    )
    found = await watched.read()
    assert found[key("prompts_total", tenant="alice", outcome="success")] == 1
    assert found[key("prompts_total", tenant="bob", outcome="interrupted")] == 1
    assert found[key("prompts_total", tenant=OTHER, outcome="error")] == 1
    assert found[key("prompt_wait_seconds_sum", tenant="alice")] == 2.5
    assert found[key("prompt_run_seconds_sum", outcome="success")] == 2.0
    assert found[key("nodes_total", result="cached")] == 2
    assert found[key("nodes_total", result="executed")] == 1


async def test_queue_is_shown_by_tenant(watched: Watched) -> None:
    watched.record("p1")
    watched.record("p2")
    watched.record("p3", BOB)
    watched.queue.take(BOB)
    found = await watched.read()
    assert found[key("queue_pending_prompts", tenant="alice")] == 2
    assert found[key("queue_pending_prompts", tenant="bob")] == 0
    assert found[key("running_prompts", tenant="bob")] == 1
    assert found[key("queue_next_age_seconds", tenant="alice")] == 15.0


async def test_spread_of_vtime_is_that_of_tenants_with_work(watched: Watched) -> None:
    state = watched.state
    state.handle(WorkerJoined(WorkerId("w0.0"), (("gpu", 2), ("cpu", 1)), 0.0, "w"))
    for number, tenant in enumerate((ALICE, BOB)):
        each = replace(spec(tenant, name=f"i{number}"), run=PromptId(f"p{number}"))
        state.handle(InvocationSubmitted(each, 0.0, "test"))
    lane = state.ledger.lanes["gpu"]
    expected = abs(lane.v_time_s(ALICE) - lane.v_time_s(BOB))
    lane.charge(ALICE, 5.0, 0.0)
    found = await watched.read()
    assert found[key("vtime_spread_seconds", lane="gpu")] == pytest.approx(5.0 + expected)
    assert found[key("vtime_spread_seconds", lane="cpu")] == 0
    assert found[key("active_tenants")] == 2


async def test_workers_are_shown_by_slot(watched: Watched) -> None:
    found = await watched.read()
    assert (found[key("worker_up", worker="w0")], found[key("worker_up", worker="w1")]) == (1, 0)
    assert found[key("worker_restarts_total", worker="w0")] == 1
    tiers = ("resident", "host", "disk", "made")
    assert [found[key("weight_layers_total", worker="w0", tier=tier)] for tier in tiers] == [9, 4, 3, 1]
    assert found[key("weight_loaded_bytes_total", worker="w0", tier="disk")] == 30
    assert found[key("weights_bytes", worker="w0", place="device", kind="used")] == 700
    assert found[key("weights_bytes", worker="w0", place="host", kind="budget")] == 500
    assert found[key("arena_bytes", worker="w0", kind="used")] == 1024
    assert found[key("link_round_trip_seconds", worker="w0")] == 0.002
    assert key("link_round_trip_seconds", worker="w1") not in found
    assert found[key("workers_lost_total")] == 2
    assert found[key("ready")] == 1


async def test_every_metric_of_ours_has_our_prefix_a_text_and_a_base_unit(watched: Watched) -> None:
    told(watched.meter)(stay())
    body, _ = await watched.metrics.render("")
    for family in text_string_to_metric_families(body.decode()):
        if family.name.startswith("process_"):
            continue
        assert family.name.startswith("comfyserverless_")
        assert family.documentation
        assert not family.name.endswith(("_ms", "_mb", "_us", "_percent"))


async def test_a_reader_may_ask_for_open_metrics(watched: Watched) -> None:
    body, content_type = await watched.metrics.render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_telling_of_a_stay_costs_little() -> None:
    watched = Watched()
    tell, each = told(watched.meter), stay()
    tell(each)  # the first of its kind makes what counts it
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        tell(each)
    finally:
        sys.setprofile(before)
    assert calls < 300, "of functions, and their ends"
