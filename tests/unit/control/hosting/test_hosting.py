"""What the engine has to do with packs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from comfyserverless.control.files import FolderPaths
from comfyserverless.control.hosting.host import HostDown
from comfyserverless.control.hosting.hosting import Hosting
from comfyserverless.core import messages as wire
from comfyserverless.core import values
from comfyserverless.core.config import EngineConfig, Folders
from comfyserverless.core.errors import PromptError
from comfyserverless.core.hosting import Catalog, InputInfo, NodeInfo, OutputInfo
from comfyserverless.core.ids import DEFAULT_TENANT, NodeId, TenantId, WorkerId
from comfyserverless.graph.plan import Plan
from comfyserverless.graph.questions import Question

HOST = WorkerId("host.0")
SHOW = NodeInfo(
    "Show", (InputInfo("value", "INT"),), (OutputInfo("INT"),), {}, {"name": "Show"}, output_node=True
)
BUILT_IN = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0}},
    "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
}
WITH_PACK = {"1": {"class_type": "Show", "inputs": {"value": 3}}}


class World:
    """Hosting with one pack, and a host that answers as the test says."""

    def __init__(self, base: Path, *, has_pack: bool = True) -> None:
        if has_pack:
            (base / "custom_nodes" / "pack").mkdir(parents=True)
        folders = Folders(base, (), base, base, base, base, base / "custom_nodes")
        self.files = FolderPaths(folders)
        self.hosting = Hosting(EngineConfig(folders), self.files, base)
        self.asked: list[tuple[str, Any]] = []
        self.answers: dict[str, Any] = {}
        self.hosting.host.connect(lambda _, message: self._take(message), lambda _: None, lambda: None)

    def load(self, info: NodeInfo = SHOW) -> None:
        self.hosting.host.joined(HOST)
        catalog = msgspec.to_builtins(Catalog((), {"Show": info}))
        self.hosting.host.received(wire.HostNotice("catalog", values.encode(catalog)))

    def _take(self, message: wire.ToWorker) -> None:
        assert isinstance(message, wire.HostQuestion)
        self.asked.append((message.kind, values.decode(message.payload)))
        if message.kind in self.answers:
            answer = wire.HostAnswer(message.id, values.encode(self.answers[message.kind]))
            asyncio.get_running_loop().call_soon(self.hosting.host.received, answer)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_prompt_of_built_in_nodes_waits_for_no_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, waits = World(tmp_path), []
    monkeypatch.setattr(world.hosting.host, "loaded", lambda *within_s: waits.append(within_s))
    validation = await world.hosting.validated(BUILT_IN, world.files, None)
    assert validation.plan is not None
    assert waits == []
    assert world.asked == []


async def test_prompt_with_a_node_of_a_pack_waits_until_packs_are_loaded(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.answers["describe"] = {"1": msgspec.to_builtins(SHOW)}
    waiting = asyncio.create_task(world.hosting.validated(WITH_PACK, world.files, None))
    await settle()
    assert not waiting.done()
    world.load()
    validation = await waiting
    assert validation.plan is not None
    ((kind, payload),) = world.asked
    assert kind == "describe"
    assert payload["nodes"] == [{"id": "1", "class_type": "Show", "inputs": {"value": 3}}]
    assert payload["about"]["places"]["input"] == str(tmp_path)


@pytest.mark.parametrize("has_pack", [True, False])
async def test_class_that_nobody_has_is_an_error_of_the_prompt(tmp_path: Path, has_pack: bool) -> None:
    world = World(tmp_path, has_pack=has_pack)
    world.answers["describe"] = {"1": None}
    world.load()
    prompt = {"1": {"class_type": "NoSuchNode", "inputs": {}}}
    validation = await world.hosting.validated(prompt, world.files, None)
    assert validation.error is not None
    assert validation.error["type"] == "missing_node_type"


async def test_entries_of_classes_are_those_of_the_moment_or_the_last_ones(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.load()
    world.answers["object_info"] = {"Show": {"name": "Show", "fresh": True}}
    assert await world.hosting.object_info(world.files) == {"Show": {"name": "Show", "fresh": True}}
    del world.answers["object_info"]
    asking = asyncio.create_task(world.hosting.object_info(world.files, "Show"))
    await settle()
    number = max(world.hosting.host._asked)
    world.hosting.host.received(wire.HostAnswer(number, b"", "OSError: no more"))
    assert await asking == {"Show": {"name": "Show"}}
    assert await world.hosting.object_info(world.files, "KSampler") == {}


async def test_instances_of_nodes_that_left_the_graphs_are_forgotten(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.load()
    hosting = world.hosting
    hosting._instances |= {
        ("default", "1", "Show"),
        ("default", "2", "Show"),
        ("default", "1.0.0.3", "Show"),
        ("default", "2.0.0.3", "Show"),
        ("default", "3", "Other"),
        ("other", "2", "Show"),
    }
    world.answers["forget"] = None
    hosting.retain(DEFAULT_TENANT, [plan_of({"1": "Show", "3": "Show"})])
    await settle()
    ((kind, payload),) = world.asked
    assert kind == "forget"
    gone = [["default", "2", "Show"], ["default", "2.0.0.3", "Show"], ["default", "3", "Other"]]
    assert sorted(payload["nodes"]) == gone
    hosting.retain(TenantId("other"), [plan_of({"2": "Show"})])
    await settle()
    assert len(world.asked) == 1


def plan_of(nodes: dict[str, str]) -> Plan:
    """Return as much of a plan as is looked at."""
    made = {
        node: SimpleNamespace(id=node, declaration=SimpleNamespace(name=name)) for node, name in nodes.items()
    }
    return cast("Plan", SimpleNamespace(nodes=made))


async def test_prompt_does_not_wait_for_packs_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    never_loaded = world.hosting.host.loaded
    monkeypatch.setattr(world.hosting.host, "loaded", lambda: never_loaded(0.01))
    with pytest.raises(HostDown, match="not loaded yet"):
        await world.hosting.validated(WITH_PACK, world.files, None)


async def test_value_that_cannot_be_sent_is_an_error_of_the_prompt(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.load()
    prompt = {"1": {"class_type": "Show", "inputs": {"value": 1 << 80}}}
    with pytest.raises(PromptError, match="cannot be asked about this"):
        await world.hosting.validated(prompt, world.files, None)


@pytest.mark.parametrize(
    ("tags", "is_sent"), [({}, False), ({"graph": "PROMPT"}, True), ({"g": "DYNPROMPT"}, True)]
)
async def test_graph_goes_along_when_tokens_are_asked_for_only_if_a_class_wants_it(
    tmp_path: Path, tags: dict[str, str], is_sent: bool
) -> None:
    world = World(tmp_path)
    world.load(msgspec.structs.replace(SHOW, hidden=tags))
    world.answers["changed"] = {"1": 7}
    classes = world.hosting.classes(world.files, WITH_PACK)
    assert await classes.tokens([Question(NodeId("1"), "Show", {"value": 3}, {})]) == {"1": 7}
    ((_, payload),) = world.asked
    assert payload["about"].get("prompt") == (WITH_PACK if is_sent else None)
