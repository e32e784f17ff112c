"""What nodes return, as answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comfyserverless.core.ids import WorkerId
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.host.blocking import ExecutionBlocker
from comfyserverless.host.running.answers import answer_of, needed_names
from comfyserverless.host.values import Codec, ObjectStore


@pytest.fixture
def codec(tmp_path: Path) -> Codec:
    worker = WorkerId("host.0")
    return Codec(TensorStore(worker, SharedMemoryArena(str(tmp_path / "arena"), 1 << 16)), ObjectStore(worker))


def test_every_form_of_return_is_understood(codec: Codec) -> None:
    def answer(returned: Any, *lists: bool) -> dict[str, Any]:
        return answer_of(returned, lists, codec)

    nothing = {"result": [], "ui": None, "expand": None, "blocked": None}
    assert answer((1, "a")) == {**nothing, "result": [1, "a"]}
    assert answer(None) == nothing
    assert answer({}) == nothing
    assert answer({"ui": {"text": ("a",), "one": 5}}) == {**nothing, "ui": {"text": ["a"], "one": [5]}}
    assert answer({"result": (1,), "ui": {}}) == {**nothing, "result": [1], "ui": {}}
    assert answer(ExecutionBlocker("wait")) == {**nothing, "blocked": {"message": "wait"}}
    assert answer((ExecutionBlocker(None), 2)) == {**nothing, "result": [{"__blocked__": None}, 2]}
    assert answer(([1, ExecutionBlocker("x")],), True) == {**nothing, "result": [[1, {"__blocked__": "x"}]]}


def test_links_are_links_only_beside_a_graph(codec: Codec) -> None:
    value = ["5.0.0.1", 0]
    graph = {"5.0.0.1": {"class_type": "X", "inputs": {"a": ["3", 1.0], "b": 2}, "override_display_id": "9"}}
    assert answer_of((value,), (), codec)["result"] == [value]
    expanded = answer_of({"result": (value, 7), "expand": graph}, (), codec)
    assert expanded["result"] == [{"__link__": value}, 7]
    assert expanded["expand"]["5.0.0.1"]["inputs"] == {"a": ["3", 1], "b": 2}
    assert expanded["expand"]["5.0.0.1"]["override_display_id"] == "9"


@pytest.mark.parametrize("returned", [5, "text", {"ui": [1]}, {"result": 3}, {"expand": 3}])
def test_what_is_no_result_is_refused(codec: Codec, returned: Any) -> None:
    with pytest.raises(TypeError):
        answer_of(returned, (), codec)


def test_names_of_lazy_inputs_are_texts() -> None:
    assert needed_names(None) == []
    assert needed_names("one") == ["one"]
    assert needed_names(["a", 3, None, "b"]) == ["a", "b"]
