"""Results and the tensors they mention."""

from __future__ import annotations

import pytest

from comfyserverless.control.results import ResultTable
from comfyserverless.core.ids import InvocationId, TensorId, WorkerId
from comfyserverless.core.values import ObjectRef, Output, TensorRef

A, B = InvocationId("a"), InvocationId("b")


def ref(name: str, worker: str = "w0.0") -> TensorRef:
    return TensorRef(TensorId(name), (1,), "float32", 4, WorkerId(worker), 0)


def test_tensor_is_freed_with_its_last_mention_only() -> None:
    table = ResultTable()
    shared = ref("t1")
    table.put(A, {"state": {"x": shared}})
    table.put(B, {"state": [ref("t2"), shared]})
    assert table.drop(A) == {}
    assert table.drop(B) == {"w0.0": ["t2", "t1"]}
    assert table.tensor_count() == 0


def test_object_of_the_node_host_is_held_and_freed_like_a_tensor() -> None:
    table = ResultTable()
    thing = ObjectRef(TensorId("o1"), WorkerId("h0.0"), "pack.Thing")
    assert table.put(A, {"answers": [{"result": [thing, ref("t1")]}]}) == ("h0.0", "w0.0")
    table.put(B, {"answers": [thing]})
    assert table.mentions_worker(A, WorkerId("h0.0"))
    assert table.bytes_on(WorkerId("h0.0")) == 0
    assert table.drop(A) == {"w0.0": ["t1"]}
    assert table.drop(B) == {"h0.0": ["o1"]}


def test_holders_are_the_workers_of_all_tensors() -> None:
    table = ResultTable()
    assert table.put(A, {"x": [ref("t1", "w1.0"), ref("t2", "w0.0"), ref("t3", "w1.0")]}) == ("w1.0", "w0.0")
    assert table.mentions_worker(A, WorkerId("w0.0"))
    assert not table.mentions_worker(A, WorkerId("w2.0"))


def test_outputs_resolve_to_parts_of_results() -> None:
    table = ResultTable()
    table.put(A, {"plan": {"steps": 3, "evaluations": [{"step": 0}]}})
    value = {"n": Output(A, "plan")["steps"], "list": [Output(A, "plan", ("evaluations", 0, "step")), "text"]}
    assert table.resolve(value) == {"n": 3, "list": [0, "text"]}
    with pytest.raises(KeyError):
        table.resolve([Output(B, "x")])


def test_dropping_an_unknown_result_frees_nothing() -> None:
    assert ResultTable().drop(A) == {}
