from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from comfyserverless.core import messages as wire
from comfyserverless.core import values
from comfyserverless.core.errors import WorkerError
from comfyserverless.core.ids import InvocationId, WorkerId
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.sdk.modelfn import ModelFn
from comfyserverless.worker.execution import Execution
from comfyserverless.worker.lanes import Ticket
from tests.unit.worker.functions import Double, Echo, Fail, Loads, Recorded


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TensorStore]:
    arena = SharedMemoryArena(str(tmp_path / "arena"), 1 << 20)
    yield TensorStore(WorkerId("w0.0"), arena)
    arena.close()


def run(store: TensorStore, function: ModelFn, *, commits: bool = True, pool: Any = None, **inputs: Any) -> Any:
    execution = Execution({function.name: function}, store, pool or Recorded(), lambda _: None)
    call = wire.RunInvocation(InvocationId("i1"), function.name, "cpu", values.encode(inputs))
    return execution.run(call, Ticket(lambda: commits, lambda: False))


def test_function_gets_tensors_and_answers_with_refs(store: TensorStore) -> None:
    answer = run(store, Double(), x=store.put(torch.tensor([1.0, 2.0])))
    outputs = values.decode(answer.outputs)
    assert isinstance(answer, wire.InvocationDone)
    assert torch.equal(store.get(outputs["y"]), torch.tensor([2.0, 4.0]))
    assert outputs["is_inference"] is True


def test_load_model_sees_refs_and_the_pool(store: TensorStore) -> None:
    answer = run(store, Loads(), x=store.put(torch.zeros(1)))
    assert values.decode(answer.outputs) == {"seen": "TensorRef Recorded"}


def test_waiting_for_weights_inside_of_computing_counts_as_loading(store: TensorStore) -> None:
    pool = Recorded()

    class Streams(Echo):
        def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
            pool.waited_s = 5000.0
            return {"x": None}

    timing = run(store, Streams(), pool=pool, x=1).timing
    assert timing.load_s > 5000.0
    assert timing.compute_s == 0.0


def test_input_that_is_returned_keeps_its_ref(store: TensorStore) -> None:
    ref = store.put(torch.arange(5))
    assert values.decode(run(store, Echo(), x=ref).outputs) == {"x": ref}


def test_result_of_a_cancelled_invocation_is_dropped(store: TensorStore) -> None:
    ref = store.put(torch.zeros(100))
    used = store.used_bytes
    answer = run(store, Double(), commits=False, x=ref)
    assert isinstance(answer, wire.InvocationCancelled)
    assert answer.timing.total_s() > 0
    assert store.used_bytes == used


def test_failure_names_the_class_and_only_the_functions_frames(store: TensorStore) -> None:
    answer = run(store, Fail(ValueError("bad \udc80 width")))
    assert isinstance(answer, wire.InvocationFailed)
    assert (answer.exception_type, answer.message) == ("ValueError", "bad ? width")
    assert len(answer.traceback) == 1
    assert "raise self.error" in answer.traceback[0]


class Special(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (Special("x"), f"{__name__}.Special"),
        (SystemExit(1), "SystemExit"),
        (WorkerError("lost", "LostTensor"), "LostTensor"),
        (torch.OutOfMemoryError("no"), "torch.OutOfMemoryError"),
        (MemoryError(), "torch.OutOfMemoryError"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate"), "torch.OutOfMemoryError"),
        (RuntimeError("shapes do not fit"), "RuntimeError"),
    ],
    ids=str,
)
def test_failure_types_have_their_dotted_names(store: TensorStore, error: BaseException, name: str) -> None:
    assert run(store, Fail(error)).exception_type == name


def test_lack_of_memory_drops_the_cached_weights(store: TensorStore) -> None:
    pool = Recorded()
    run(store, Fail(MemoryError()), pool=pool)
    assert pool.unloads == 1
    run(store, Fail(ValueError()), pool=pool)
    assert pool.unloads == 1


def test_full_arena_is_a_capacity_error_and_keeps_nothing(store: TensorStore) -> None:
    answer = run(store, Double(), x=store.put(torch.zeros(150_000)))
    assert answer.exception_type == "comfyserverless.core.errors.NoRoomError"
    assert "does not fit" in answer.message
    assert store.used_bytes == 600_064


def test_result_that_is_no_value_is_refused(store: TensorStore) -> None:
    class Odd(Echo):
        def execute(self, components: Any, **inputs: Any) -> Any:
            return {"x": torch.zeros(3), "odd": {1, 2}}

    answer = run(store, Odd(), x=None)
    assert answer.exception_type == "TypeError"
    assert "builtins.set is no value" in answer.message
    assert store.used_bytes == 0


def test_unknown_function_is_the_prompts_fault(store: TensorStore) -> None:
    execution = Execution({}, store, Recorded(), lambda _: None)
    call = wire.RunInvocation(InvocationId("i1"), "no.such", "cpu", values.encode({}))
    answer = execution.run(call, Ticket(lambda: True, lambda: False))
    assert isinstance(answer, wire.InvocationFailed)
    assert "no model function 'no.such'" in answer.message


def test_checkpoint_is_written_when_asked_for_and_read_instead_of_running(
    store: TensorStore, tmp_path: Path
) -> None:
    path = tmp_path / "0.checkpoint"
    path.touch()
    execution = Execution({"test.double": Double()}, store, Recorded(), lambda _: None)
    ticket = Ticket(lambda: True, lambda: False)
    inputs = values.encode({"x": store.put(torch.tensor([1.5]))})
    order = wire.CheckpointOrder(str(path), 1 << 16)
    call = wire.RunInvocation(InvocationId("i1"), "test.double", "cpu", inputs, save=order)
    done = execution.run(call, ticket)
    assert isinstance(done, wire.InvocationDone)
    assert done.checkpoint_bytes == path.stat().st_size > 0
    assert 0 < done.checkpoint_s < done.timing.compute_s
    call = wire.RunInvocation(InvocationId("i1"), "test.double", "cpu", values.encode({}), restore=str(path))
    again = execution.run(call, ticket)
    assert isinstance(again, wire.InvocationDone)
    assert again.checkpoint_bytes == 0
    assert torch.equal(store.get(values.decode(again.outputs)["y"]), torch.tensor([3.0]))


def test_checkpoint_that_cannot_be_written_does_not_fail_the_call(store: TensorStore, tmp_path: Path) -> None:
    execution = Execution({"test.echo": Echo()}, store, Recorded(), lambda _: None)
    order = wire.CheckpointOrder(str(tmp_path / "gone"), 1 << 16)
    call = wire.RunInvocation(InvocationId("i1"), "test.echo", "cpu", values.encode({"x": 1}), save=order)
    done = execution.run(call, Ticket(lambda: True, lambda: False))
    assert isinstance(done, wire.InvocationDone)
    assert done.checkpoint_bytes == 0
    assert not list(tmp_path.glob("gone*"))
