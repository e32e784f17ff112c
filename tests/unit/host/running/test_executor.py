"""Running calls of nodes: instances, threads, errors, interruption."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from comfyserverless.core import messages as wire
from comfyserverless.core import values as trees
from comfyserverless.core.ids import InvocationId, WorkerId
from comfyserverless.core.modelfn import Lane
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.host import bridge
from comfyserverless.host.bridge import InterruptProcessingException, Places
from comfyserverless.host.contract import ClassEntry
from comfyserverless.host.loading.registry import ClassRegistry
from comfyserverless.host.running.current import Running
from comfyserverless.host.running.executor import Executor
from comfyserverless.host.running.live import LiveBridge
from comfyserverless.host.values import Codec, ObjectStore
from comfyserverless.worker.lanes import Ticket

HOST = WorkerId("host.0")
TAGS = {"extra": "EXTRA_PNGINFO"}


class Node:
    """What test nodes share."""

    FUNCTION = "run"
    RETURN_TYPES: ClassVar[tuple[str, ...]] = ("INT",)

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {}}


class Packs(threading.Event):
    """Tells when packs are loaded; `awaited` is set once somebody waits for that."""

    def __init__(self) -> None:
        super().__init__()
        self.awaited = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.awaited.set()
        return super().wait(timeout)


class Rig:
    """An executor with what it says to the control process, which answers what `parts` asks for."""

    def __init__(self, folder: Path) -> None:
        self.prompt: dict[str, Any] = {}
        self.asked: list[Any] = []
        self.store = TensorStore(HOST, SharedMemoryArena(str(folder / "arena"), 1 << 16))
        self.said: list[wire.FromWorker] = []
        self.bridge = LiveBridge(self._take, Codec(self.store, ObjectStore(HOST)), Places(*[folder] * 5))
        self.registry = ClassRegistry()
        self.loaded = Packs()
        self.loaded.set()
        self.cancelled = threading.Event()
        self.executor = Executor(self.registry, Codec(self.store, ObjectStore(HOST)), self.bridge, self.loaded)

    def _take(self, message: wire.FromWorker) -> None:
        if isinstance(message, wire.HostRequest) and message.kind == "prompt":
            wanted = trees.decode(message.payload)
            self.asked.append(wanted)
            given: dict[str, Any] = {name: json.dumps(self.prompt[name]) for name in wanted if name != "nodes"}
            if "nodes" in wanted:
                given["nodes"] = self.prompt["nodes"][wanted["nodes"] :]
            self.bridge.reply(wire.HostReply(message.id, trees.encode(given)))
        else:
            self.said.append(message)

    def add(self, run: Callable[..., Any], **attributes: Any) -> None:
        """Register the class `Stub`."""
        cls = type("Stub", (Node,), {"run": run, **attributes})
        self.registry.add(ClassEntry("Stub", cls, "custom_nodes.p", "Stub"))

    def call(self, *calls: dict[str, Any], lane: Lane = "pack", **about: Any) -> wire.FromWorker:
        """Run calls of the node 5."""
        inputs = {
            "node": {"id": "5", "class_type": "Stub", "python_module": "custom_nodes.p"},
            "method": "execute",
            "calls": list(calls or ({},)),
            "about": {"tenant": "t", "prompt_id": "p", **about},
        }
        message = wire.RunInvocation(InvocationId("p/5/0"), "pack.call", lane, trees.encode(inputs))
        return self.executor.run(message, Ticket(lambda: not self.cancelled.is_set(), self.cancelled.is_set))

    def answer_later(self, make: Callable[[wire.HostRequest], wire.HostReply]) -> None:
        """Answer the next request of a node, which waits by then or will soon."""

        def answer() -> None:
            until_s = time.monotonic() + 60
            while not self.said and time.monotonic() < until_s:
                time.sleep(1e-3)
            (request,) = self.said
            assert isinstance(request, wire.HostRequest)
            self.bridge.reply(make(request))

        threading.Thread(target=answer).start()

    def results(self, *calls: dict[str, Any], **how: Any) -> list[Any]:
        """Run calls, and return their results."""
        answer = self.call(*calls, **how)
        assert isinstance(answer, wire.InvocationDone), answer
        return [each["result"] for each in trees.decode(answer.outputs)["answers"]]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    before = bridge.install(made.bridge)
    yield made
    bridge.install(before)
    made.store.close()


def test_mapped_calls_share_the_instance_of_their_node(rig: Rig) -> None:
    def run(self: Any, step: int) -> tuple[int]:
        self.total = getattr(self, "total", 0) + step
        return (self.total,)

    rig.add(run)
    assert rig.results({"step": 1}, {"step": 2}) == [[1], [3]]
    assert rig.results({"step": 4}) == [[7]]
    assert rig.results({"step": 4}, tenant="other") == [[4]]
    rig.executor.instances.forget([("t", "5", "Stub")])
    assert rig.results({"step": 4}) == [[4]]


def test_calls_run_in_inference_mode_and_know_what_they_are(rig: Rig) -> None:
    def run(self: Any) -> tuple[Any, ...]:
        call = bridge.bridge().call
        return torch.is_inference_mode_enabled(), call.node_id, call.tenant, call.list_index, call.class_type

    rig.add(run)
    assert rig.results({}, {}) == [[True, "5", "t", 0, "Stub"], [True, "5", "t", 1, "Stub"]]
    assert bridge.bridge().call.node_id == ""


def test_coroutines_run_together_in_inference_mode(rig: Rig) -> None:
    together = asyncio.Barrier(8)

    async def run(self: Any) -> tuple[Any, ...]:
        async with asyncio.timeout(60):
            await together.wait()
        return torch.is_inference_mode_enabled(), bridge.bridge().call.list_index

    rig.add(run)
    assert rig.results(*[{}] * 8, lane="async") == [[True, index] for index in range(8)]


def test_first_coroutine_that_fails_fails_the_node_and_ends_the_others(rig: Rig) -> None:
    ended: list[str] = []

    async def run(self: Any, wait_s: float) -> tuple[Any, ...]:
        try:
            await asyncio.sleep(wait_s)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        raise ValueError("first")

    rig.add(run)
    answer = rig.call({"wait_s": 0.01}, {"wait_s": 30.0}, lane="async")
    assert isinstance(answer, wire.InvocationFailed)
    assert (answer.exception_type, answer.message) == ("ValueError", "first")
    assert ended == ["cancelled"]


def test_error_shows_the_lines_of_the_pack_only(rig: Rig) -> None:
    def run(self: Any) -> None:
        raise KeyError("gone")

    rig.add(run)
    answer = rig.call()
    assert isinstance(answer, wire.InvocationFailed)
    assert answer.exception_type == "KeyError"
    assert len(answer.traceback) == 1
    assert 'raise KeyError("gone")' in answer.traceback[0]


class _Foul(BaseException):
    """An exception that is no Exception."""


class _Mute(RuntimeError):
    """An exception that has no message."""

    def __str__(self) -> str:
        raise ValueError("nobody shall know")


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit(), asyncio.CancelledError(), _Foul(), _Mute()]
)
@pytest.mark.parametrize("lane", ["pack", "async"])
def test_whatever_a_node_raises_becomes_an_answer_and_the_next_call_runs(
    rig: Rig, error: BaseException, lane: Lane
) -> None:
    def fail(self: Any) -> None:
        raise error

    async def fail_late(self: Any) -> None:
        await asyncio.sleep(0)
        raise error

    rig.add(fail if lane == "pack" else fail_late)
    answer = rig.call(lane=lane)
    assert isinstance(answer, wire.InvocationFailed)
    assert type(error).__name__ in answer.exception_type

    async def run_late(self: Any) -> tuple[int]:
        return (1,)

    rig.add(run_late)
    assert rig.results(lane="async") == [[1]]


def test_message_of_an_error_is_cut_where_nobody_reads_on(rig: Rig) -> None:
    def run(self: Any) -> None:
        raise ValueError("x" * 1_000_000)

    rig.add(run)
    answer = rig.call()
    assert isinstance(answer, wire.InvocationFailed)
    assert len(answer.message) < 200_000
    assert "more characters" in answer.message


def test_values_of_a_call_that_fails_later_are_given_up(rig: Rig) -> None:
    def run(self: Any) -> dict[str, Any]:
        return {"result": (torch.zeros(1000),), "ui": "no dict"}

    rig.add(run)
    for _ in range(40):  # the arena has room for sixteen
        answer = rig.call()
        assert isinstance(answer, wire.InvocationFailed)
        assert answer.exception_type == "TypeError"


def test_cancelled_call_ends_where_it_reports_progress(rig: Rig) -> None:
    def run(self: Any) -> tuple[int]:
        rig.cancelled.set()
        bridge.bridge().progress(1, 2)
        return (1,)

    rig.add(run)
    assert isinstance(rig.call(), wire.InvocationCancelled)
    assert rig.said == []


def test_no_call_begins_once_it_is_cancelled(rig: Rig) -> None:
    begun: list[int] = []

    def run(self: Any, number: int) -> tuple[int]:
        begun.append(number)
        rig.cancelled.set()
        return (number,)

    rig.add(run)
    assert isinstance(rig.call({"number": 1}, {"number": 2}), wire.InvocationCancelled)
    assert begun == [1]


def test_node_that_interrupts_stops_its_prompt_first(rig: Rig) -> None:
    def run(self: Any) -> None:
        raise InterruptProcessingException

    rig.add(run)
    answer = rig.call()
    (request,) = rig.said
    assert isinstance(request, wire.HostRequest)
    assert (request.kind, request.invocation) == ("interrupt", "p/5/0")
    assert isinstance(answer, wire.InvocationFailed)
    assert answer.exception_type == "comfy.model_management.InterruptProcessingException"


def test_change_of_the_workflow_is_told_before_the_answer(rig: Rig) -> None:
    def run(self: Any, extra: dict[str, Any]) -> tuple[int]:
        extra["seed"] = extra.get("seed", 0) + 1
        return (extra["seed"],)

    rig.add(run)
    rig.prompt = {"workflow": {"workflow": {"nodes": []}}}
    assert rig.results(parts={"workflow": True}, hidden=TAGS) == [[1]]
    (notice,) = rig.said
    assert isinstance(notice, wire.HostNotice)
    assert notice.kind == "metadata"
    assert '"seed": 1' in trees.decode(notice.payload)["extra_pnginfo"]
    assert rig.results(parts={"workflow": True}, hidden=TAGS) == [[2]]
    assert len(rig.asked) == 1


def test_calls_of_a_run_ask_once_for_the_graph_and_then_for_nodes_that_were_added(rig: Rig) -> None:
    def run(self: Any, graph: dict[str, Any], dynamic: Any) -> tuple[Any, ...]:
        return sorted(graph), sorted(dynamic.all_node_ids()), dynamic.get_real_node_id("5.0.0.2")

    rig.add(run)
    tags = {"graph": "PROMPT", "dynamic": "DYNPROMPT"}
    added = [[f"5.0.0.{index}", {"class_type": "X"}, "5", "5", "5"] for index in (1, 2)]
    rig.prompt = {"graph": {"5": {}, "6": {}}, "nodes": added[:1]}
    first = {"run": "p#1", "hidden": tags}
    assert rig.results(parts={"graph": True, "nodes": 1}, **first) == [
        [["5", "6"], ["5", "5.0.0.1", "6"], "5.0.0.2"]
    ]
    rig.prompt["nodes"] = added
    for _ in range(2):
        (result,) = rig.results(parts={"graph": True, "nodes": 2}, **first)
        assert result == [["5", "6"], ["5", "5.0.0.1", "5.0.0.2", "6"], "5"]
    assert rig.asked == [{"graph": True, "nodes": 0}, {"nodes": 1}]
    rig.prompt = {"graph": {"7": {}}, "nodes": []}
    (other,) = rig.results(parts={"graph": True, "nodes": 0}, run="p#2", hidden=tags)
    assert other[:2] == [["7"], ["7"]]


def test_call_waits_for_packs_that_are_still_being_loaded(rig: Rig) -> None:
    rig.loaded.clear()

    def load() -> None:
        assert rig.loaded.awaited.wait(60)
        time.sleep(0.05)
        rig.add(lambda self: (1,))
        rig.loaded.set()

    threading.Thread(target=load).start()
    begin_s = time.perf_counter()
    answer = rig.call()
    passed_s = time.perf_counter() - begin_s
    assert isinstance(answer, wire.InvocationDone)
    assert answer.timing.waited_s >= 0.05
    assert answer.timing.total_s() + answer.timing.waited_s < passed_s


def test_answer_of_the_server_is_waited_for_by_nobodys_account(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, waiting = threading.Event(), Running.waiting

    @contextmanager
    def noted(self: Running) -> Iterator[None]:
        with waiting(self):
            waits.set()
            yield

    monkeypatch.setattr(Running, "waiting", noted)

    def run(self: Any) -> tuple[Any, ...]:
        return tuple(bridge.bridge().ask("run_node", {"class_type": "X", "inputs": {"picture": torch.ones(4)}}))

    def answer(request: wire.HostRequest) -> wire.HostReply:
        assert waits.wait(60)
        time.sleep(0.05)
        picture = trees.decode(request.payload)["inputs"]["picture"]
        return wire.HostReply(request.id, trees.encode([picture, 3]))

    rig.add(run)
    rig.answer_later(answer)
    begin_s = time.perf_counter()
    done = rig.call()
    passed_s = time.perf_counter() - begin_s
    assert isinstance(done, wire.InvocationDone)
    assert done.timing.waited_s >= 0.05
    assert done.timing.total_s() + done.timing.waited_s < passed_s
    (result,) = [each["result"] for each in trees.decode(done.outputs)["answers"]]
    assert torch.equal(rig.store.get(result[0]), torch.ones(4))
    assert result[1] == 3


@pytest.mark.parametrize("is_there", [True, False])
def test_node_whose_result_finds_no_room_runs_once_and_waits_for_it(rig: Rig, is_there: bool) -> None:
    runs: list[int] = []
    held = rig.store.put(torch.ones(12_000))  # 48 of the arena's 64 KiB

    def run(self: Any) -> tuple[Any, ...]:
        runs.append(1)
        return ("small", torch.ones(8_000))

    def answer(request: wire.HostRequest) -> wire.HostReply:
        assert (request.kind, request.invocation) == ("room", "p/5/0")
        if is_there:
            rig.store.free([held.id])
        return wire.HostReply(request.id, trees.encode(is_there))

    rig.add(run)
    rig.answer_later(answer)
    answered = rig.call()
    assert runs == [1]
    if is_there:
        assert isinstance(answered, wire.InvocationDone)
        (result,) = [each["result"] for each in trees.decode(answered.outputs)["answers"]]
        assert torch.equal(rig.store.get(result[1]), torch.ones(8_000))
    else:
        assert isinstance(answered, wire.InvocationFailed)
        assert answered.exception_type == "comfyserverless.core.errors.CapacityError", "else it would run again"
    rig.store.free([held.id])


def test_refusal_of_the_server_is_an_error_of_the_node(rig: Rig) -> None:
    def run(self: Any) -> None:
        bridge.bridge().ask("run_node", {"class_type": "X", "inputs": {}})

    rig.add(run)
    rig.answer_later(lambda request: wire.HostReply(request.id, b"", "PromptError", "there is no X"))
    answer = rig.call()
    assert isinstance(answer, wire.InvocationFailed)
    assert (answer.exception_type, answer.message) == ("RuntimeError", "there is no X")


def test_lack_of_memory_of_a_worker_is_the_exception_that_packs_look_for(rig: Rig) -> None:
    def run(self: Any) -> tuple[str]:
        try:
            bridge.bridge().ask("run_node", {"class_type": "X", "inputs": {}})
        except torch.OutOfMemoryError:
            return ("in tiles",)
        return ("at once",)

    rig.add(run)
    rig.answer_later(lambda request: wire.HostReply(request.id, b"", "torch.OutOfMemoryError", "no room"))
    assert rig.results() == [["in tiles"]]


def test_progress_in_a_flood_is_thinned_and_its_end_is_told(rig: Rig) -> None:
    def run(self: Any) -> tuple[int]:
        for value in range(1, 20_001):
            bridge.bridge().progress(value, 20_000)
        return (1,)

    rig.add(run)
    rig.results()
    told = [trees.decode(each.payload)["value"] for each in rig.said if isinstance(each, wire.HostNotice)]
    assert told[:3] == [1, 2, 3]
    assert told[-1] == 20_000
    assert len(told) < 1_000
