"""Questions that the control process asks of node classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comfyserverless.core import messages as wire
from comfyserverless.core import values as trees
from comfyserverless.core.ids import WorkerId
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.host.blocking import ExecutionBlocker
from comfyserverless.host.bridge import Places
from comfyserverless.host.contract import ClassEntry
from comfyserverless.host.loading.registry import ClassRegistry
from comfyserverless.host.running.instances import Instances
from comfyserverless.host.running.live import LiveBridge
from comfyserverless.host.running.questions import Questions
from comfyserverless.host.values import Codec, ObjectStore


class Stub:
    """A class whose validator gives what the test says."""

    outcome: Any = True

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"value": ("INT", {})}}

    @classmethod
    def VALIDATE_INPUTS(cls, value: int) -> Any:
        return cls.outcome


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (True, []),
        (ExecutionBlocker(None), []),
        (False, [["", ""]]),
        (None, [["", "None"]]),
        (1, [["", "1"]]),
        ("too large", [["", "too large"]]),
    ],
)
def test_validator_that_does_not_say_true_refuses_as_in_comfyui(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Any, told: list[Any]
) -> None:
    monkeypatch.setattr(Stub, "outcome", outcome)
    said: list[wire.FromWorker] = []
    host = WorkerId("host.0")
    store = TensorStore(host, SharedMemoryArena(str(tmp_path / "arena"), 1 << 12))
    registry = ClassRegistry()
    registry.add(ClassEntry("Stub", Stub, "custom_nodes.p", "Stub"))
    bridge = LiveBridge(said.append, Codec(store, ObjectStore(host)), Places(*[tmp_path] * 5))
    questions = Questions(registry, Instances(), bridge, said.append, {})
    node = {"id": "1", "class_type": "Stub", "inputs": {"value": 1}, "input_types": {}}
    questions.ask(wire.HostQuestion(1, "check", trees.encode({"nodes": [node]})))
    questions._threads.shutdown()
    (answer,) = said
    assert isinstance(answer, wire.HostAnswer)
    assert trees.decode(answer.payload) == {"1": told}
    store.close()
