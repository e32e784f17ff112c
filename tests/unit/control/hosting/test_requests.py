"""What nodes of packs ask for while they run, with a real dispatcher and a worker that the test plays."""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path
from typing import Any, cast

import pytest

from comfyserverless.control.context import NodeContext, RunIdentity, RunServices
from comfyserverless.control.dispatch import Dispatcher
from comfyserverless.control.files import FolderPaths
from comfyserverless.control.guidance.choices import Choices
from comfyserverless.control.hosting.host import PackHost
from comfyserverless.control.hosting.requests import HostRequests
from comfyserverless.control.records.saves import RunPublisher
from comfyserverless.control.workers.checkpoints import CheckpointFiles, Recovery
from comfyserverless.core import messages as wire
from comfyserverless.core import values
from comfyserverless.core.config import EngineConfig, Folders
from comfyserverless.core.ids import InvocationId, NodeId, PromptId, TenantId, WorkerId
from comfyserverless.core.values import ClipRef, FileRef
from comfyserverless.graph.lowering import HiddenInputs, StepProgress
from comfyserverless.scheduling.config import SchedulingConfig
from tests.support.graph_fakes import tensor

WORKER, HOST = WorkerId("w0.1"), WorkerId("host.0")
CALL = InvocationId("p#0/5/0")


class Listener:
    """Note what a node shows."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_step(self, step: StepProgress, preview: bytes | None, node: NodeId | None = None) -> None:
        self.seen.append((step.value, step.maximum, preview, node))

    def on_text(self, text: str, node: NodeId | None = None) -> None:
        self.seen.append((text, node))


class Desk:
    """Requests of a host, and the messages to the worker and back to the host."""

    def __init__(self, base: Path) -> None:
        self.sent: list[wire.ToWorker] = []
        self.replies: list[wire.HostReply] = []
        self.listener = Listener()
        folders = Folders(base, (), base, base, base, base, base)
        files = FolderPaths(folders)
        self.dispatcher = Dispatcher(
            SchedulingConfig(slack_s=1.0),
            lambda _, message: self.sent.append(message),
            lambda: 0.0,
            lambda _: False,
            Recovery(CheckpointFiles(base, 0)),
        )
        self.dispatcher.worker_joined(WORKER, {"gpu": 1, "cpu": 1})
        self.host = PackHost(EngineConfig(folders), files, base)
        self.host.connect(
            lambda _, message: self.replies.append(cast("Any", message)), lambda _: None, lambda: None
        )
        self.host.joined(HOST)
        self.requests = HostRequests(self.host, lambda _: None)
        self.services = RunServices(
            self.dispatcher, files, cast("RunPublisher", None), True, "none", 512, "off", Choices(None), "tag"
        )

    def context(self) -> NodeContext:
        hidden = HiddenInputs({"5": {"class_type": "Stub"}}, {"workflow": 1}, NodeId("5"), tenant="t")
        identity = RunIdentity(PromptId("p#0"), TenantId("t"), "none", node=NodeId("5"), node_class="Stub")
        return NodeContext(self.services, identity, hidden, self.listener)

    async def ask(self, kind: str, payload: Any, number: int = 0, invocation: str = CALL) -> None:
        self.host.received(wire.HostRequest(number, InvocationId(invocation), kind, values.encode(payload)))
        await settle()

    def tell(self, kind: str, payload: Any) -> None:
        self.host.received(wire.HostNotice(kind, values.encode(payload), CALL))

    async def finish(self, **outputs: Any) -> wire.RunInvocation:
        """Finish the call that was started last."""
        run = next(each for each in reversed(self.sent) if isinstance(each, wire.RunInvocation))
        self.dispatcher.done(WORKER, wire.InvocationDone(run.invocation, values.encode(outputs), wire.Timing()))
        await settle()
        return run

    def freed(self) -> list[str]:
        return [name for each in self.sent if isinstance(each, wire.FreeTensors) for name in each.tensors]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


INVERT = {"class_type": "ImageInvert", "inputs": {"image": tensor("given", 1)}}


async def test_built_in_node_runs_for_the_node_that_asks_and_its_result_is_held_until_it_is_read(
    desk: Desk,
) -> None:
    with desk.requests.opened(CALL, desk.context()):
        await desk.ask("run_node", INVERT)
        assert desk.replies == []
        run = await desk.finish(images=tensor("made", 1))
        assert run.function == "image.invert"
        assert desk.dispatcher.state.table.records[run.invocation].spec.tenant == "t"
        assert desk.dispatcher.state.table.records[run.invocation].spec.node_class == "Stub"
        (reply,) = desk.replies
        assert values.decode(reply.payload) == [tensor("made", 1)]
        assert desk.freed() == []
        desk.tell("read", {"request": 0})
        assert desk.freed() == ["made"]


async def test_result_that_nobody_read_is_freed_with_the_call(desk: Desk) -> None:
    with desk.requests.opened(CALL, desk.context()):
        await desk.ask("run_node", INVERT)
        await desk.finish(images=tensor("made", 1))
    assert desk.freed() == ["made"]


async def test_node_without_work_for_a_worker_is_answered_at_once(desk: Desk) -> None:
    clip = ClipRef((FileRef("/c"),))
    payload = {"class_type": "CLIPSetLastLayer", "inputs": {"clip": clip, "stop_at_clip_layer": -2}}
    with desk.requests.opened(CALL, desk.context()):
        await desk.ask("run_node", payload)
    (handle,) = values.decode(desk.replies[0].payload)
    assert handle.last_layer == -2


async def test_failure_of_a_built_in_node_is_the_asking_nodes_to_deal_with(desk: Desk) -> None:
    context = desk.context()
    with desk.requests.opened(CALL, context):
        await desk.ask("run_node", INVERT)
        run = next(each for each in desk.sent if isinstance(each, wire.RunInvocation))
        desk.dispatcher.failed(
            WORKER, wire.InvocationFailed(run.invocation, "ValueError", "bad picture", (), wire.Timing())
        )
        await settle()
        await context.finished()
    assert [(each.error_type, each.error) for each in desk.replies] == [("ValueError", "bad picture")]


@pytest.mark.parametrize(
    ("payload", "invocation", "told"),
    [
        ({"class_type": "NoSuchNode", "inputs": {}}, CALL, "no built-in node class 'NoSuchNode'"),
        ({"class_type": "ImageInvert", "inputs": {}}, CALL, "ImageInvert needs image"),
        (INVERT, "", "only by a node that runs"),
    ],
)
async def test_request_that_cannot_be_met_says_why(
    desk: Desk, payload: Any, invocation: str, told: str
) -> None:
    with desk.requests.opened(CALL, desk.context()):
        await desk.ask("run_node", payload, invocation=invocation)
    assert told in desk.replies[0].error


async def test_unfinished_request_ends_with_its_call(desk: Desk) -> None:
    with desk.requests.opened(CALL, desk.context()):
        await desk.ask("run_node", INVERT)
    await settle()
    assert desk.replies[0].error_type == "InterruptProcessingException"


async def test_progress_texts_and_changes_go_to_the_node_that_runs(desk: Desk) -> None:
    context = desk.context()
    with desk.requests.opened(CALL, context):
        desk.tell("progress", {"value": 1.0, "maximum": 4.0, "node_id": "5", "preview": b"p"})
        desk.tell("text", {"text": "hello", "node_id": "7"})
        desk.tell("metadata", {"extra_pnginfo": '{"workflow": 2, "more": 3}'})
    desk.tell("progress", {"value": 2.0, "maximum": 4.0, "node_id": "5", "preview": None})
    assert desk.listener.seen == [(1.0, 4.0, b"p", None), ("hello", "7")]
    assert context.hidden.extra_pnginfo == {"workflow": 2, "more": 3}


async def test_what_a_call_is_about_is_told_for_as_long_as_the_call_may_run_again(desk: Desk) -> None:
    context = desk.context()
    context.hidden.lineage.nodes |= {
        NodeId(f"5.{n}"): {"class_type": "X", "inputs": {"a": n}} for n in range(3)
    }
    for of in (context.hidden.lineage.parents, context.hidden.lineage.displays, context.hidden.lineage.reals):
        of |= dict.fromkeys(context.hidden.lineage.nodes, NodeId("5"))
    about = {"parts": {"graph": True, "nodes": 3}}
    call = context.emit("pack.call", node={}, method="execute", calls=[], about=about)
    with desk.requests.opened(call.id, context):
        pass
    context.release()
    del context  # its run has ended; a later one wants what the call made, which was lost
    gc.collect()
    await desk.ask("prompt", {"graph": True, "workflow": True, "nodes": 1}, 3, call.id)
    told = values.decode(desk.replies[0].payload)
    assert json.loads(told["graph"]) == {"5": {"class_type": "Stub"}}
    assert json.loads(told["workflow"]) == {"workflow": 1}
    assert told["nodes"] == [[f"5.{n}", {"class_type": "X", "inputs": {"a": n}}, "5", "5", "5"] for n in (1, 2)]
    desk.dispatcher.close_run(PromptId("p#0"))
    gc.collect()
    await desk.ask("prompt", {"graph": True}, 4, call.id)
    assert "not known any more" in desk.replies[1].error


async def test_call_whose_results_find_no_room_hears_whether_there_is_some_now(desk: Desk) -> None:
    desk.dispatcher.worker_joined(HOST, {"pack": 1})
    context = desk.context()
    call = context.emit("pack.call", node={}, method="execute", calls=[], about={})
    with desk.requests.opened(call.id, context):
        await desk.ask("room", {}, 5, call.id)
        desk.dispatcher._make_room = lambda worker: worker == HOST
        await desk.ask("room", {}, 6, call.id)
    assert [
        (each.id, values.decode(each.payload)) for each in desk.replies if isinstance(each, wire.HostReply)
    ] == [
        (5, False),
        (6, True),
    ]


async def test_call_that_is_made_again_may_ask_as_long_as_its_node_is_there(desk: Desk) -> None:
    context = desk.context()
    with desk.requests.opened(CALL, context):
        pass
    await desk.ask("run_node", INVERT, 7)
    await desk.finish(images=tensor("made", 1))
    assert values.decode(desk.replies[0].payload) == [tensor("made", 1)]
    desk.tell("read", {"request": 7})
    assert desk.freed() == ["made"]
    del context
    gc.collect()
    await desk.ask("run_node", INVERT, 8)
    assert "only by a node that runs" in desk.replies[1].error


async def test_request_that_failed_holds_nothing(desk: Desk) -> None:
    with desk.requests.opened(CALL, desk.context()):
        await desk.ask("run_node", INVERT, 3)
        run = next(each for each in desk.sent if isinstance(each, wire.RunInvocation))
        failure = wire.InvocationFailed(run.invocation, "ValueError", "bad", (), wire.Timing())
        desk.dispatcher.failed(WORKER, failure)
        await settle()
        assert desk.dispatcher.state.table.records[run.invocation].pins == 0
