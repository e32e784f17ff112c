"""Replay what happened in recorded runs and compare the messages with the recorded ones."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from comfyserverless.control.views import (
    NodeBlocked,
    NodeExecuted,
    NodeFinished,
    NodeOrigin,
    NodePreview,
    NodeProgress,
    NodesCached,
    NodeStarted,
    NodeText,
    Notice,
    QueueChanged,
    RunEnded,
    RunFailed,
    RunInterrupted,
    RunStarted,
    RunSucceeded,
)
from comfyserverless.core.ids import DEFAULT_TENANT, NodeId, PromptId, TenantId
from comfyserverless.server.wire import Outgoing, Support, Translator

TRACES = json.loads((Path(__file__).parents[2] / "contract/data/ws.json").read_text())
CONNECT_MESSAGES = 2
RUN = PromptId("11111111-2222-3333-4444-555555555555")
JPEG = b"\xff\xd8jpeg"


class Replayer:
    """Find the notices behind recorded messages."""

    def __init__(self) -> None:
        self._finished: dict[str, set[str]] = {}
        self._preview: bytes | None = None

    def notices(self, messages: list[dict[str, Any]]) -> list[Notice]:
        found: list[Notice] = []
        for message in messages:
            if "_binary" in message:
                self._preview = JPEG
            else:
                found += self._notices(message["type"], message["data"])
        return found

    def _notices(self, kind: str, data: dict[str, Any]) -> list[Notice]:
        if kind == "status":
            return [QueueChanged(DEFAULT_TENANT, data["status"]["exec_info"]["queue_remaining"])]
        common = (PromptId(data["prompt_id"]), DEFAULT_TENANT, "trace-client")
        at_ms = data.get("timestamp", 0)
        match kind:
            case "execution_start":
                return [RunStarted(*common, at_ms)]
            case "execution_cached":
                return [NodesCached(*common, tuple(data["nodes"]), at_ms)]
            case "execution_success":
                return [RunSucceeded(*common, at_ms)]
            case "executing":
                node = data["node"]
                return [RunEnded(*common) if node is None else NodeStarted(*common, node)]
            case "executed":
                return [NodeExecuted(*common, data["node"], data["output"])]
            case "progress":
                return self._step(common, data)
            case "progress_state":
                return self._newly_finished(common, data)
        return [self._stop(kind, common, data)]

    def _stop(self, kind: str, common: tuple[Any, ...], data: dict[str, Any]) -> Notice:
        at_ms = data["timestamp"]
        executed = tuple(data["executed"])
        if kind == "execution_interrupted":
            return RunInterrupted(*common, data["node_id"], data["node_type"], executed, at_ms)
        assert kind == "execution_error"
        return RunFailed(
            *common,
            data["node_id"],
            data["node_type"],
            executed,
            data["exception_message"],
            data["exception_type"],
            tuple(data["traceback"]),
            data["current_inputs"],
            tuple(data["current_outputs"]),
            at_ms,
        )

    def _step(self, common: tuple[Any, ...], data: dict[str, Any]) -> list[Notice]:
        step = NodeProgress(*common, data["node"], data["value"], data["max"])
        preview, self._preview = self._preview, None
        return [step] if preview is None else [step, NodePreview(*common, data["node"], preview)]

    def _newly_finished(self, common: tuple[Any, ...], data: dict[str, Any]) -> list[Notice]:
        known = self._finished.setdefault(common[0], set())
        new = [node for node, state in data["nodes"].items() if state["state"] == "finished"]
        new = [node for node in new if node not in known]
        known.update(new)
        return [NodeFinished(*common, NodeId(node)) for node in new]


def comparable(messages: list[dict[str, Any]]) -> list[Any]:
    """Show a trace without queue lengths (other clients change them at any time)."""
    return [
        "preview" if "_binary" in message else message
        for message in messages
        if message.get("type") != "status"
    ]


def replay(translator: Translator, notices: list[Notice]) -> list[Outgoing]:
    """Translate notices as the hub does: held messages leave before the loop comes round again."""
    sent: list[Outgoing] = []
    for index, notice in enumerate(notices):
        sent += translator.translate(notice)
        if not isinstance(next(iter(notices[index + 1 :]), None), NodePreview):
            sent += translator.flush()
    return sent


@pytest.mark.parametrize("name", TRACES)
def test_messages_of_a_run_equal_the_recorded_ones(name: str) -> None:
    recorded = TRACES[name]["messages"][CONNECT_MESSAGES:]
    sent = replay(Translator(), Replayer().notices(recorded))
    seen = [
        {"_binary": 1} if message.type == "preview_with_metadata" else json.loads(message.frame())
        for message in sent
        if message.support is not Support.LEGACY
    ]
    assert comparable(seen) == comparable(recorded)
    statuses = [message["data"] for message in recorded if message.get("type") == "status"]
    assert [message.data for message in sent if message.type == "status"] == statuses


def test_preview_frame_with_metadata_equals_the_recorded_header() -> None:
    messages = TRACES["sd15_txt2img_preview_latent2rgb"]["messages"]
    head = base64.b64decode(next(message["_head"] for message in messages if "_binary" in message))
    kind, length = struct.unpack(">II", head[:8])
    metadata = json.loads(head[8 : 8 + length])

    translator = Translator()
    common = (PromptId(metadata["prompt_id"]), DEFAULT_TENANT, "trace-client")
    node = NodeId(metadata["node_id"])
    translator.translate(NodeProgress(*common, node, 1, 3))
    first = translator.translate(NodePreview(*common, node, JPEG))[0]
    frame = first.frame()
    assert isinstance(frame, bytes)
    assert struct.unpack(">I", frame[:4])[0] == kind == 4
    size = struct.unpack(">I", frame[4:8])[0]
    assert json.loads(frame[8 : 8 + size]) == metadata
    assert frame[8 + size :] == JPEG


def test_preview_comes_before_progress_only_for_clients_that_know_its_metadata() -> None:
    translator = Translator()
    common = (RUN, DEFAULT_TENANT, "c1")
    sent = translator.translate(NodeProgress(*common, NodeId("3"), 1, 2))
    sent += translator.translate(NodePreview(*common, NodeId("3"), JPEG))
    for_new = [message.type for message in sent if message.support is not Support.LEGACY]
    for_old = [message.type for message in sent if message.support is not Support.METADATA]
    assert for_new == ["progress_state", "preview_with_metadata", "progress"]
    assert for_old == ["progress_state", "progress", "preview"]
    assert sent[-1].frame() == struct.pack(">II", 1, 1) + JPEG


def test_run_without_client_tells_everybody_progress_previews_and_interruption_only() -> None:
    translator = Translator()
    common = (RUN, DEFAULT_TENANT, None)
    node = NodeId("3")
    notices: list[Notice] = [
        RunStarted(*common, 1),
        NodesCached(*common, (), 1),
        NodeStarted(*common, node),
        NodeProgress(*common, node, 1, 2),
        NodePreview(*common, node, JPEG),
        NodeExecuted(*common, node, {"images": []}),
        NodeFinished(*common, node),
        RunInterrupted(*common, node, "KSampler", (), 2),
        RunEnded(*common),
    ]
    sent = replay(translator, notices)
    assert [message.type for message in sent] == [
        "progress_state",
        "progress_state",
        "progress",
        "preview",
        "progress_state",
        "execution_interrupted",
    ]
    assert all(message.client_id is None and message.support is Support.ANY for message in sent)


def test_ended_run_is_forgotten() -> None:
    translator = Translator()
    common = (RUN, DEFAULT_TENANT, "c1")
    replay(translator, [NodeStarted(*common, NodeId("1")), RunEnded(*common)])
    state = translator.translate(NodeStarted(*common, NodeId("2")))[0]
    assert list(state.data["nodes"]) == ["2"]


def test_huge_run_does_not_repeat_all_its_nodes_for_each_of_them() -> None:
    count, translator, states = 2000, Translator(), []
    common = (RUN, DEFAULT_TENANT, "c")
    notices: list[Notice] = []
    for index in range(count):
        node = NodeId(str(index))
        notices += [NodeStarted(*common, node), NodeFinished(*common, node)]
    told = [message for notice in notices for message in translator.translate(notice)]
    states = [message.data["nodes"] for message in told if message.type == "progress_state"]
    assert sum(message.type == "executing" for message in told) == count
    assert [len(nodes) for nodes in states[:256]] == [1 + index // 2 for index in range(256)]
    assert sum(len(nodes) for nodes in states) < 500_000  # all of them would be 4 millions
    (last, success) = translator.translate(RunSucceeded(*common, 1))
    assert success.type == "execution_success"
    assert [node["state"] for node in last.data["nodes"].values()] == ["finished"] * count
    assert [message.type for message in translator.translate(RunEnded(*common))] == ["executing"]


def test_sampler_of_a_huge_run_tells_every_step() -> None:
    translator = Translator()
    common = (RUN, DEFAULT_TENANT, None)
    for index in range(1000):
        translator.translate(NodeStarted(*common, NodeId(str(index))))
    for step in range(3):
        told = translator.translate(NodeProgress(*common, NodeId("999"), step, 3))
        assert told[-1].data["nodes"]["999"]["value"] == step


def test_equal_prompt_ids_of_two_tenants_are_never_mixed() -> None:
    translator = Translator()
    alice, bob = (RUN, TenantId("alice"), "c"), (RUN, TenantId("bob"), "c")
    translator.translate(NodeStarted(*alice, NodeId("a")))
    translator.translate(NodeProgress(*alice, NodeId("a"), 1, 2))
    sent = translator.translate(NodeStarted(*bob, NodeId("b")))
    assert {message.tenant for message in sent} == {"bob"}
    states = [message.data["nodes"] for message in sent if message.type == "progress_state"]
    assert [set(nodes) for nodes in states] == [{"b"}]
    assert [message.tenant for message in translator.flush()] == ["alice"]
    translator.translate(RunEnded(*bob))
    later = translator.translate(NodeStarted(*alice, NodeId("c")))
    states = [message.data["nodes"] for message in later if message.type == "progress_state"]
    assert [set(nodes) for nodes in states] == [{"a", "c"}]


ORIGIN = NodeOrigin(display=NodeId("5"), parent=NodeId("2.0.0.1"), real=NodeId("2"))
ADDED = NodeId("2.0.0.7")


def test_added_node_is_told_with_where_it_belongs() -> None:
    translator = Translator()
    common = (RUN, DEFAULT_TENANT, "c1")
    notices: list[Notice] = [
        NodeStarted(*common, ADDED, origin=ORIGIN),
        NodeProgress(*common, ADDED, 1, 2, origin=ORIGIN),
        NodePreview(*common, ADDED, JPEG, origin=ORIGIN),
        NodeExecuted(*common, ADDED, {"text": ["a"]}, origin=ORIGIN),
    ]
    sent = {message.type: message.data for message in replay(translator, notices)}
    assert sent["executing"] == {"node": ADDED, "display_node": "5", "prompt_id": RUN}
    assert sent["executed"]["display_node"] == "5"
    assert sent["progress"]["node"] == ADDED
    for state in (sent["progress_state"]["nodes"][ADDED], sent["preview_with_metadata"]):
        assert (state["node_id"], state["display_node_id"]) == (ADDED, "5")
        assert (state["parent_node_id"], state["real_node_id"]) == ("2.0.0.1", "2")


def test_blocked_node_is_an_execution_error_without_a_time() -> None:
    common = (RUN, DEFAULT_TENANT, "c1")
    blocked = NodeBlocked(*common, ADDED, "Save", "no picture", (NodeId("1"),), origin=ORIGIN)
    (message,) = Translator().translate(blocked)
    assert message.type == "execution_error"
    assert "no picture" in message.data["exception_message"]
    assert message.data | {"exception_message": ""} == {
        "prompt_id": RUN,
        "node_id": "2",
        "node_type": "Save",
        "executed": ["1"],
        "exception_message": "",
        "exception_type": "ExecutionBlocked",
        "traceback": [],
        "current_inputs": [],
        "current_outputs": [],
    }
    nobody = NodeBlocked(RUN, DEFAULT_TENANT, None, NodeId("2"), "Save", "no picture", ())
    assert Translator().translate(nobody) == []


def test_text_of_a_node_is_a_binary_frame_with_its_id() -> None:
    (message,) = Translator().translate(NodeText(RUN, DEFAULT_TENANT, "c1", NodeId("3"), "half \u00e4"))
    assert message.frame() == struct.pack(">II", 3, 1) + b"3" + "half \u00e4".encode()


def test_preview_may_be_a_png() -> None:
    png = b"\x89PNG and so on"
    sent = Translator().translate(NodePreview(RUN, DEFAULT_TENANT, "c1", NodeId("3"), png))
    frames = {message.type: message for message in sent}
    assert frames["preview"].frame() == struct.pack(">II", 1, 2) + png
    assert frames["preview_with_metadata"].data["image_type"] == "image/png"


def test_deeply_nested_expansion_does_not_flood_its_client() -> None:
    translator, sent = Translator(), 0
    common = (RUN, DEFAULT_TENANT, "c")
    node = "1"
    for _ in range(400):
        node += ".0.0.1"
        for event in (NodeStarted(*common, NodeId(node)), NodeFinished(*common, NodeId(node))):
            sent += sum(len(message.frame()) for message in translator.translate(event))
    (state, _) = translator.translate(RunSucceeded(*common, 1))
    assert len(state.data["nodes"]) == 400, "the last state is told"
    assert sent < 40_000_000, "all nodes at each of them would be a gigabyte"
