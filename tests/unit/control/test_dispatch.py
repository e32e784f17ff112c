"""The dispatcher between runs, the scheduling state and workers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from comfyserverless.control import dispatch
from comfyserverless.control.dispatch import LOST_TENSOR, NO_ROOM, PUBLICATION_FAILED, Call, Dispatcher
from comfyserverless.control.workers.checkpoints import CheckpointFiles, Recovery
from comfyserverless.core import messages as wire
from comfyserverless.core import values
from comfyserverless.core.errors import WorkerError
from comfyserverless.core.ids import DEFAULT_TENANT, InvocationId, NodeId, PromptId, TensorId, WorkerId
from comfyserverless.core.values import Output, PublishedRef, TensorRef, Value
from comfyserverless.scheduling.events import InvocationSpec
from comfyserverless.scheduling.state import SchedulingConfig

RUN = PromptId("run")
W0, W1 = WorkerId("w0.0"), WorkerId("w1.0")


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_LOSS_GRACE_S", 0.01)


class Bench:
    """A dispatcher with a written-down outbox and a clock that ticks."""

    def __init__(self, *workers: WorkerId, overlaps: bool = False, folder: Path = Path("/nowhere")) -> None:
        self.sent: list[tuple[WorkerId, wire.ToWorker]] = []
        self.outcomes: dict[str, WorkerError | None] = {}
        #: what asking for room will answer, last first.
        self.rooms: list[bool] = []
        self._now_s = 0.0
        recovery = Recovery(CheckpointFiles(folder, 1 << 20))
        self.dispatcher = Dispatcher(
            SchedulingConfig(slack_s=1.0, overlap_callbacks=overlaps, checkpoint_steps=1),
            self._send,
            self._clock,
            lambda _: self.rooms.pop(),
            recovery,
        )
        for worker in workers:
            self.dispatcher.worker_joined(worker, {"gpu": 1})

    def _send(self, worker: WorkerId, message: wire.ToWorker) -> None:
        self.sent.append((worker, message))

    def _clock(self) -> float:
        self._now_s += 0.01
        return self._now_s

    def submit(self, name: str, **inputs: Value) -> Output:
        needs = dict.fromkeys(output.invocation for output in values.outputs_in(dict(inputs)))
        call = Call(self.spec(name, *needs), inputs, lambda _, error: self.outcomes.update({name: error}))
        self.dispatcher.submit(call)
        return Output(call.spec.id, "out")

    def submit_follower(self, name: str, source: Output) -> None:
        """Submit an invocation whose input `x` is a callback input."""
        spec = replace(self.spec(name), callback_needs=(source.invocation,))
        self.dispatcher.submit(Call(spec, {"x": source}, lambda _, error: self.outcomes.update({name: error})))

    def publish(self, name: str, worker: WorkerId = W0) -> None:
        message = wire.InvocationPublished(InvocationId(name), "out", TensorId(f"p-{name}"), b"there")
        self.dispatcher.published(worker, message)

    def spec(self, name: str, *needs: InvocationId, is_step: bool = False) -> InvocationSpec:
        return InvocationSpec(
            id=InvocationId(name),
            run=RUN,
            tenant=DEFAULT_TENANT,
            node=NodeId("1"),
            function="f",
            lane="gpu",
            cost_key="f",
            needs=needs,
            is_step=is_step,
        )

    def orders(self) -> list[tuple[str, bool, str]]:
        """List what was started: its name, whether a checkpoint is asked for, which one is read."""
        runs = [m for _, m in self.sent if isinstance(m, wire.RunInvocation)]
        return [(run.invocation, run.save is not None, run.restore) for run in runs]

    def started(self) -> list[str]:
        return [m.invocation for _, m in self.sent if isinstance(m, wire.RunInvocation)]

    def inputs_of(self, name: str) -> dict[str, Value]:
        runs = [m for _, m in self.sent if isinstance(m, wire.RunInvocation) and m.invocation == name]
        decoded: dict[str, Value] = values.decode(runs[-1].inputs)
        return decoded

    def freed(self) -> list[str]:
        return [tensor for _, m in self.sent if isinstance(m, wire.FreeTensors) for tensor in m.tensors]

    def finish(self, name: str, worker: WorkerId = W0, tensor: str | None = None) -> None:
        ref = TensorRef(TensorId(tensor or f"t-{name}"), (1,), "float32", 4, worker, 0)
        outputs = values.encode({"out": ref})
        self.dispatcher.done(
            worker, wire.InvocationDone(InvocationId(name), outputs, wire.Timing(compute_s=0.1))
        )

    def fail(self, name: str, worker: WorkerId = W0, kind: str = "ValueError") -> None:
        message = wire.InvocationFailed(InvocationId(name), kind, "bad", ("frame",), wire.Timing())
        self.dispatcher.failed(worker, message)

    def close(self, *names: str) -> None:
        self.dispatcher.unpin([InvocationId(name) for name in names], "end")
        self.dispatcher.close_run(RUN)


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_inputs_are_resolved_when_the_invocation_starts() -> None:
    bench = Bench(W0)
    first = bench.submit("a", x=1)
    bench.submit("b", x=first, y=[2, {"z": first}])
    assert bench.started() == ["a"]
    bench.finish("a")
    assert bench.started() == ["a", "b"]
    inputs = bench.inputs_of("b")
    assert inputs["x"].id == "t-a"
    assert inputs["y"] == [2, {"z": inputs["x"]}]
    await asyncio.sleep(0)
    assert bench.outcomes == {"a": None}


async def test_waiting_for_a_value_ends_with_the_result() -> None:
    bench = Bench()
    output = bench.submit("a")
    waiting = asyncio.create_task(bench.dispatcher.value(output))
    await asyncio.sleep(0)
    bench.dispatcher.worker_joined(W0, {"gpu": 1})
    bench.finish("a")
    assert (await waiting).id == "t-a"


async def test_waiters_have_a_result_at_once_and_its_report_waits_for_the_picture() -> None:
    bench = Bench(W0, W1)
    waiting = asyncio.create_task(bench.dispatcher.value(bench.submit("a")))
    bench.submit("b")
    await asyncio.sleep(0)
    for name, worker in (("a", W0), ("b", W1)):
        done = wire.InvocationDone(InvocationId(name), values.encode({"out": 1}), wire.Timing(), shows=True)
        bench.dispatcher.done(worker, done)
    assert await waiting == 1
    await asyncio.sleep(0)
    assert bench.outcomes == {}
    bench.dispatcher.pictures.arrived(InvocationId("a"), b"jpeg")
    assert bench.outcomes == {"a": None}
    bench.dispatcher.worker_lost(W1)
    assert bench.outcomes == {"a": None, "b": None}


async def test_failure_reaches_the_waiter_with_type_and_traceback() -> None:
    bench = Bench(W0)
    output = bench.submit("a")
    waiting = asyncio.create_task(bench.dispatcher.value(output))
    await asyncio.sleep(0)
    bench.fail("a")
    with pytest.raises(WorkerError, match="bad") as caught:
        await waiting
    assert (caught.value.exception_type, caught.value.traceback) == ("ValueError", ("frame",))
    with pytest.raises(WorkerError):
        await bench.dispatcher.value(output)


@pytest.mark.parametrize("value", ["lone \ud800 surrogate", 2**70, {1, 2}])
async def test_input_without_a_wire_form_fails_its_call_and_frees_the_lane(value: object) -> None:
    bench = Bench(W0)
    bench.submit("a", x=value)
    bench.submit("b")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert isinstance(bench.outcomes["a"], WorkerError)
    assert bench.started() == ["b"]


async def test_lost_worker_runs_again_only_what_is_still_needed() -> None:
    bench = Bench(W0)
    first = bench.submit("a")
    second = bench.submit("b", x=first)
    bench.submit("c", x=second)
    bench.finish("a")
    bench.finish("b")
    assert bench.started() == ["a", "b", "c"]
    bench.dispatcher.unpin([InvocationId("a")], "lowered")
    assert bench.freed() == ["t-a"]
    bench.dispatcher.worker_lost(W0)
    bench.dispatcher.worker_joined(W1, {"gpu": 1})
    for name in ("a", "b", "c"):
        bench.finish(name, W1, f"again-{name}")
    assert bench.started() == ["a", "b", "c", "a", "b", "c"]
    assert bench.inputs_of("c")["x"].id == "again-b"
    await asyncio.sleep(0)
    assert bench.outcomes == {"a": None, "b": None, "c": None}


async def test_dependents_hear_of_a_producer_that_fails_when_it_is_made_again() -> None:
    bench = Bench(W0)
    first = bench.submit("a")
    bench.finish("a")
    bench.submit("b", x=first)
    bench.dispatcher.worker_lost(W0)
    bench.dispatcher.worker_joined(W1, {"gpu": 1})
    bench.fail("a", W1)
    await asyncio.sleep(0)
    assert bench.outcomes["a"] is None
    await asyncio.sleep(0)
    assert isinstance(bench.outcomes["b"], WorkerError)


async def test_failure_for_want_of_an_input_waits_for_the_loss_that_caused_it() -> None:
    bench = Bench(W0, W1)
    first = bench.submit("a")
    bench.finish("a", W0)
    bench.submit("c")
    bench.submit("b", x=first)
    where = {m.invocation: w for w, m in bench.sent if isinstance(m, wire.RunInvocation)}
    owner, runner = where[InvocationId("c")], where[InvocationId("b")]
    assert (owner, runner) == (W0, W1)
    message = wire.InvocationFailed(InvocationId("b"), LOST_TENSOR, "gone", (), wire.Timing())
    bench.dispatcher.failed(runner, message)
    assert "b" not in bench.outcomes
    bench.dispatcher.worker_lost(owner)
    await asyncio.sleep(0.05)
    assert "b" not in bench.outcomes
    bench.finish("c", W1)
    bench.finish("a", W1, "again-a")
    bench.finish("b", W1)
    assert bench.started()[3:] == ["c", "a", "b"]
    await asyncio.sleep(0)
    assert bench.outcomes == {"a": None, "b": None, "c": None}


async def test_failure_that_was_held_back_is_void_once_its_own_worker_is_lost_too() -> None:
    bench = Bench(W0, W1, overlaps=True)
    source = bench.submit("net")
    runner = next(worker for worker, m in bench.sent if isinstance(m, wire.RunInvocation))
    other = W1 if runner == W0 else W0
    message = wire.InvocationFailed(InvocationId("net"), LOST_TENSOR, "gone", (), wire.Timing())
    bench.dispatcher.failed(runner, message)
    bench.dispatcher.worker_lost(runner)
    bench.publish("net", other)
    await asyncio.sleep(0.05)
    assert bench.freed() == [], "the second run is still publishing"
    bench.dispatcher.worker_joined(WorkerId("w2.0"), {"gpu": 1})
    bench.submit_follower("step", source)
    assert bench.started() == ["net", "net", "step"]


async def test_call_that_found_no_room_runs_again_as_long_as_room_can_be_made() -> None:
    bench = Bench(W0)
    bench.submit("a")
    bench.rooms = [False, True]
    bench.fail("a", kind=NO_ROOM)
    assert bench.started() == ["a", "a"]
    bench.fail("a", kind=NO_ROOM)
    await asyncio.sleep(0)
    assert isinstance(bench.outcomes["a"], WorkerError)
    assert bench.started() == ["a", "a"]


async def test_call_waits_for_room_that_others_hold_and_runs_again_when_it_is_given_back() -> None:
    bench = Bench(W0)
    other = bench.submit("a")
    bench.finish("a")
    bench.submit("b")
    bench.rooms = [False]
    bench.fail("b", kind=NO_ROOM)
    bench.submit("c")
    assert bench.started() == ["a", "b", "c"], "the lane is free meanwhile"
    bench.finish("c")
    assert bench.started() == ["a", "b", "c"]
    bench.dispatcher.unpin([other.invocation], "end")
    assert bench.freed() == ["t-a"]
    assert bench.started() == ["a", "b", "c", "b"]
    bench.finish("b")
    await asyncio.sleep(0)
    assert bench.outcomes == {"a": None, "b": None, "c": None}


async def test_call_whose_own_inputs_leave_no_room_fails_at_once() -> None:
    bench = Bench(W0)
    source = bench.submit("a")
    bench.finish("a")
    bench.submit("b", x=source)
    bench.rooms = [False]
    bench.fail("b", kind=NO_ROOM)
    await asyncio.sleep(0)
    assert isinstance(bench.outcomes["b"], WorkerError)


async def test_call_that_waits_for_room_goes_with_its_run() -> None:
    bench = Bench(W0)
    bench.submit("a")
    bench.finish("a")
    bench.submit("b")
    bench.rooms = [False]
    bench.fail("b", kind=NO_ROOM)
    bench.close("b")
    bench.dispatcher.unpin([InvocationId("a")], "end")
    assert bench.freed() == ["t-a"]
    assert bench.started() == ["a", "b"]
    assert bench.dispatcher.counts() == {"calls": 0, "results": 0, "tensors": 0, "publications": 0}


async def test_poison_call_is_given_up_after_two_lost_workers() -> None:
    bench = Bench()
    output = bench.submit("a")
    for count in range(2):
        worker = WorkerId(f"w0.{count}")
        bench.dispatcher.worker_joined(worker, {"gpu": 1})
        bench.dispatcher.worker_lost(worker)
    assert bench.started() == ["a", "a"]
    with pytest.raises(WorkerError, match="2 times"):
        await bench.dispatcher.value(output)
    await asyncio.sleep(0)
    assert isinstance(bench.outcomes["a"], WorkerError)


async def test_a_step_goes_on_from_its_checkpoint_when_its_worker_is_lost(tmp_path: Path) -> None:
    bench = Bench(W0, folder=tmp_path)
    bench.dispatcher.submit(Call(bench.spec("a", is_step=True), {"x": 1}, None))
    bench.submit("b", x=Output(InvocationId("a"), "out"))
    (file,) = files_in(tmp_path)
    ref = TensorRef(TensorId("t-a"), (1,), "float32", 4, W0, 0)
    done = wire.InvocationDone(InvocationId("a"), values.encode({"out": ref}), wire.Timing(), 10, 0.001)
    bench.dispatcher.done(W0, done)
    bench.dispatcher.worker_lost(W0)
    bench.dispatcher.worker_joined(W1, {"gpu": 1})
    assert bench.orders() == [("a", True, ""), ("b", False, ""), ("a", False, str(file))]
    assert bench.inputs_of("a") == {}
    view = bench.dispatcher.recovery()
    assert (view.workers_lost, view.restored, view.steps_rerun, view.checkpoint_bytes) == (1, 1, 0, 10)
    bench.finish("a", W1)
    bench.finish("b", W1)
    bench.close("a", "b")
    assert not files_in(tmp_path)


async def test_the_order_of_a_worker_that_died_while_it_wrote_leaves_no_file(tmp_path: Path) -> None:
    bench = Bench(W0, folder=tmp_path)
    bench.dispatcher.submit(Call(bench.spec("a", is_step=True), {}, None))
    assert files_in(tmp_path)
    bench.dispatcher.worker_lost(W0)
    assert not files_in(tmp_path)


async def test_late_result_of_a_closed_run_is_freed() -> None:
    bench = Bench(W0)
    bench.submit("a")
    bench.close("a")
    cancels = [m for _, m in bench.sent if isinstance(m, wire.CancelInvocation)]
    assert [m.invocation for m in cancels] == ["a"]
    bench.finish("a")
    assert bench.freed() == ["t-a"]
    assert bench.dispatcher.counts() == {"calls": 0, "results": 0, "tensors": 0, "publications": 0}


async def test_worker_that_goes_on_with_a_cancelled_call_is_told_after_a_while() -> None:
    bench = Bench(W0)
    bench.submit("a")
    assert bench.dispatcher.held_up(0.0) == {}
    bench.close("a")
    assert bench.dispatcher.held_up(1.0) == {}
    assert bench.dispatcher.held_up(0.005) == {W0: "a"}
    bench.finish("a")
    assert bench.dispatcher.held_up(0.0) == {}


async def test_pinned_result_outlives_its_run_and_nothing_is_left_after() -> None:
    bench = Bench(W0)
    output = bench.submit("a")
    bench.dispatcher.pin([output.invocation], "cache")
    bench.finish("a")
    bench.close("a")
    assert bench.dispatcher.counts()["results"] == 1
    assert (await bench.dispatcher.value(output)).id == "t-a"
    bench.dispatcher.unpin([output.invocation], "cache")
    assert bench.dispatcher.counts() == {"calls": 0, "results": 0, "tensors": 0, "publications": 0}
    assert bench.freed() == ["t-a"]


@pytest.mark.parametrize("end", ["cancelled", "done", "failed", "worker lost"])
async def test_what_an_invocation_left_behind_is_cleared_once_it_left_its_lane(end: str) -> None:
    bench = Bench(W0)
    bench.submit("a")
    cleared: list[str] = []
    call = Call(bench.spec("b"), {}, None, lambda: cleared.append("b"))
    bench.finish("a")
    bench.dispatcher.submit(call)
    bench.close("a", "b")
    assert cleared == []
    if end == "cancelled":
        bench.dispatcher.cancelled(W0, wire.InvocationCancelled(InvocationId("b"), wire.Timing()))
    elif end == "done":
        bench.finish("b")
    elif end == "failed":
        bench.fail("b")
    else:
        bench.dispatcher.worker_lost(W0)
    assert cleared == ["b"]
    assert bench.dispatcher.counts() == {"calls": 0, "results": 0, "tensors": 0, "publications": 0}


async def test_consumer_of_a_callback_input_is_told_where_its_elements_will_be() -> None:
    bench = Bench(W0, W1, overlaps=True)
    bench.submit_follower("step", bench.submit("control"))
    assert bench.started() == ["control"]
    bench.publish("control")
    assert bench.inputs_of("step") == {"x": PublishedRef(b"there")}
    bench.finish("control", W0)
    assert bench.freed() == []
    bench.finish("step", W1)
    assert bench.freed() == ["p-control"]


async def test_elements_are_asked_for_only_where_another_worker_could_use_them() -> None:
    for workers, overlaps, publishes in (
        ((W0,), True, False),
        ((W0, W1), True, True),
        ((W0, W1), False, False),
    ):
        bench = Bench(*workers, overlaps=overlaps)
        bench.submit("control")
        (run,) = [m for _, m in bench.sent if isinstance(m, wire.RunInvocation)]
        assert run.publishes is publishes


async def test_consumer_that_starts_after_the_end_gets_the_result_itself() -> None:
    bench = Bench(W0, overlaps=True)
    bench.submit_follower("step", bench.submit("control"))
    bench.publish("control")
    bench.finish("control")
    assert bench.freed() == ["p-control"]
    assert bench.inputs_of("step")["x"].id == "t-control"


@pytest.mark.parametrize("kind", [PUBLICATION_FAILED, LOST_TENSOR])
async def test_consumer_that_saw_its_input_end_before_we_heard_of_it_is_no_failure(kind: str) -> None:
    bench = Bench(W0, W1, overlaps=True)
    bench.submit_follower("step", bench.submit("control"))
    bench.publish("control")
    bench.fail("step", W1, kind)
    await asyncio.sleep(0.05 if kind == LOST_TENSOR else 0)
    assert bench.started() == ["control", "step"], "it waits for its producer now"
    bench.dispatcher.worker_lost(W0)
    bench.finish("control", W1)
    bench.finish("step", W1)
    assert bench.started() == ["control", "step", "control", "step"]
    await asyncio.sleep(0)
    assert bench.outcomes == {"control": None, "step": None}


async def test_publication_of_a_lost_worker_is_forgotten_with_its_readers() -> None:
    bench = Bench(W0, W1, overlaps=True)
    bench.submit_follower("step", bench.submit("control"))
    bench.publish("control")
    bench.dispatcher.worker_lost(W0)
    assert bench.dispatcher.counts()["publications"] == 1, "its reader may still look"
    bench.dispatcher.cancelled(W1, wire.InvocationCancelled(InvocationId("step"), wire.Timing()))
    assert bench.dispatcher.counts()["publications"] == 0
    assert bench.freed() == []
