"""What packs find as `PromptServer.instance`."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyserverless.host.bridge import CallInfo
from comfyserverless.host.web.part import make_server
from comfyserverless.host.web.prompt_server import PromptServer
from tests.support.pack_modules import RememberingBridge, module, pack_modules


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[RememberingBridge]:
    with pack_modules(tmp_path, port=8190) as bridge:
        yield bridge


@pytest.fixture
def server(bridge: RememberingBridge) -> PromptServer:
    return make_server()


def test_packs_find_the_one_that_is_served(server: PromptServer) -> None:
    assert module("server").PromptServer.instance is server
    assert server.port == 8190
    assert "custom_nodes_from_web" in server.supports


def test_messages_go_to_a_client_or_to_all(server: PromptServer, bridge: RememberingBridge) -> None:
    server.send_sync("own/type", {"a": 1}, "c1")
    server.send_sync("own/type", [1])
    server.send_sync(3, b"text")
    assert bridge.told == [
        ("send", ("own/type", {"a": 1}, "c1")),
        ("send", ("own/type", [1], None)),
        ("send", (3, b"text", None)),
    ]


def test_a_picture_that_is_not_encoded_is_sent_as_a_preview(
    server: PromptServer, bridge: RememberingBridge
) -> None:
    kinds = module("server").BinaryEventTypes
    server.send_sync(kinds.UNENCODED_PREVIEW_IMAGE, ("PNG", Image.new("RGB", (8, 4)), 4), "c")
    event, data, client = bridge.told[0][1]
    assert (event, client, struct.unpack(">I", data[:4])[0]) == (kinds.PREVIEW_IMAGE, "c", 2)
    assert Image.open(io.BytesIO(data[4:])).size == (4, 2)


def test_other_binary_messages_need_bytes(server: PromptServer) -> None:
    with pytest.raises(TypeError, match="bytes"):
        server.send_sync(7, {"a": 1})


def test_text_is_shown_at_a_node(server: PromptServer, bridge: RememberingBridge) -> None:
    server.send_progress_text("half done", "7")
    assert bridge.told == [("text", ("half done", "7"))]


def test_what_runs_is_told_and_cannot_be_changed(server: PromptServer, bridge: RememberingBridge) -> None:
    assert (server.client_id, server.last_node_id, server.last_prompt_id) == (None, None, None)
    bridge.own_call = CallInfo(client_id="c", node_id="7", prompt_id="p")
    server.client_id = server.last_node_id = server.last_prompt_id = "other"
    assert (server.client_id, server.last_node_id, server.last_prompt_id) == ("c", "7", "p")


def test_queue_is_asked_for_and_not_changed(server: PromptServer, bridge: RememberingBridge) -> None:
    bridge.answers["queue"] = {"running": [["a"]], "pending": [["b"], ["c"]]}
    assert server.prompt_queue.get_current_queue() == ([["a"]], [["b"], ["c"]])
    assert server.get_queue_info() == {"exec_info": {"queue_remaining": 3}}
    bridge.answers["history"] = {"p1": {"status": 1}, "p2": {"status": 2}}
    assert server.prompt_queue.get_history(max_items=2, map_function=lambda entry: entry["status"]) == {
        "p1": 1,
        "p2": 2,
    }
    assert bridge.told[-1] == ("history", {"tenant": "default", "prompt_id": None, "max_items": 2})
    assert server.prompt_queue.get_history(max_items=5, offset=1) == {"p2": {"status": 2}}
    with pytest.raises(NotImplementedError, match=r"prompt_queue\.put"):
        server.prompt_queue.put(())


def test_prompt_handlers_edit_one_after_the_other_and_failures_are_passed_over(
    server: PromptServer, caplog: pytest.LogCaptureFixture
) -> None:
    def first(body: dict[str, Any]) -> dict[str, Any]:
        body["prompt"]["1"]["inputs"]["x"] = 1
        return body

    def breaks_half_way(body: dict[str, Any]) -> dict[str, Any]:
        body["prompt"].clear()
        raise ValueError("half way")

    for handler in (first, breaks_half_way, lambda body: None, lambda body: {**body, "last": True}):
        server.add_on_prompt_handler(handler)
    body = server.trigger_on_prompt({"prompt": {"1": {"inputs": {}}}})
    assert body == {"prompt": {"1": {"inputs": {"x": 1}}}, "last": True}
    assert caplog.text.count("an on-prompt handler of") == 2
    json.dumps(body)


def test_what_the_server_has_not_is_told_by_name(server: PromptServer) -> None:
    with pytest.raises(AttributeError, match=r"comfyserverless has no server\.PromptServer\.instance\.nothing"):
        _ = server.nothing
    assert getattr(server, "asset_manager", None) is None
    assert (Path(server.web_root) / "index.html").is_file()
