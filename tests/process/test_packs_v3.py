"""A pack with a schema (V3) on a real server: every part of the contract, seen by a websocket client."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.client import Client, RunResult
from tests.support.server import RunningServer, ServerOptions
from tests.support.tenants import add_tenant

PACK = Path(__file__).parents[1] / "support" / "packs" / "v3"

Graph = dict[str, dict[str, Any]]


MIXED = """
from comfy_api.latest import io

class Doubles(io.ComfyNode):
    @classmethod
    def define_schema(cls):
        return io.Schema("NameOfTheSchema", inputs=[io.Int.Input("a")], outputs=[io.Int.Output()])

    @classmethod
    def execute(cls, a):
        return io.NodeOutput(2 * a)

class CallsDoubles:
    RETURN_TYPES = ("INT",)
    FUNCTION = "run"

    @classmethod
    def INPUT_TYPES(cls):
        return Doubles.INPUT_TYPES()

    def run(self, a):
        other = Doubles()
        return (getattr(other, other.FUNCTION)(a=a)[0] + 1,)

NODE_CLASS_MAPPINGS = {"V3Doubles": Doubles, "V1CallsV3": CallsDoubles}
NODE_DISPLAY_NAME_MAPPINGS = {"V3Doubles": "Twice"}
"""
"""A pack in the manner of V1 that has classes of both kinds, which use each other."""


@pytest.fixture(scope="module")
def v3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Return a server with both packs."""
    base = tmp_path_factory.mktemp("v3")
    shutil.copytree(PACK, base / "custom_nodes" / "v3", ignore=shutil.ignore_patterns("__pycache__"))
    (base / "custom_nodes" / "mixed.py").write_text(MIXED)
    running = RunningServer.start(ServerOptions(base))
    try:
        yield running
    finally:
        running.stop()


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    """Return a node in API form; a `__` in a name stands for a dot."""
    named = {name.replace("__", "."): value for name, value in inputs.items()}
    return {"class_type": class_type, "inputs": named}


def shown(result: RunResult, at: str = "9") -> list[str]:
    """Return the texts that a V3Reports showed."""
    assert result.outcome == "execution_success", (result.messages[-2:], result.history.get("status"))
    texts: list[str] = result.history["outputs"][at]["text"]
    return texts


async def run(server: RunningServer, graph: Graph, **fields: Any) -> RunResult:
    """Run a graph with a client of its own."""
    async with Client(server.url) as client:
        await client.wait_for_workers()
        return await client.run(graph, **fields)


async def refused(server: RunningServer, graph: Graph) -> Any:
    """Return the answer to a graph that is not accepted."""
    async with Client(server.url) as client:
        status, answer = await client.post("/prompt", {"prompt": graph})
    assert status == 400, answer
    return answer


async def test_classes_are_described_in_the_shapes_of_v3(v3: RunningServer) -> None:
    async with Client(v3.url) as client:
        await client.wait_for_workers()
        entries = await client.get("/object_info")
    entry = entries["V3AutogrowSum"]
    kind, options = entry["input"]["required"]["numbers"]
    assert kind == "COMFY_AUTOGROW_V3"
    part = {"required": {"number": ["INT", {"forceInput": True, "min": 0}]}}
    assert options["template"] == {"input": part, "prefix": "number", "min": 2, "max": 9}
    assert entry["python_module"] == "custom_nodes.v3"
    assert entries["V3Reports"]["input"]["hidden"] == {"prompt": ["PROMPT"], "extra_pnginfo": ["EXTRA_PNGINFO"]}
    assert entries["V3Switch"]["output_matchtypes"] == ["switch"]
    assert entries["V3AsyncAdd"]["display_name"] == "Add, async"


async def test_async_nodes_run_and_defaults_of_the_method_hold(v3: RunningServer) -> None:
    graph = {"1": node("V3AsyncAdd", a=1, b=2), "2": node("V3AsyncAdd", a=["1", 0])}
    result = await run(v3, {**graph, "9": node("V3Reports", value=["2", 0])})
    assert shown(result) == ["103"]


async def test_class_that_has_a_new_name_is_found_by_its_old_one(v3: RunningServer) -> None:
    graph = {"1": node("V3OldAdd", a=1, b=4), "9": node("V3Reports", value=["1", 0])}
    assert shown(await run(v3, graph)) == ["5"]


async def test_pack_in_the_manner_of_v1_may_have_classes_of_both_kinds(v3: RunningServer) -> None:
    graph = {
        "1": node("V3Doubles", a=4),
        "2": node("V1CallsV3", a=["1", 0]),
        "9": node("V3Reports", value=["2", 0]),
    }
    assert shown(await run(v3, graph)) == ["17"]
    async with Client(v3.url) as client:
        entry = (await client.get("/object_info/V3Doubles"))["V3Doubles"]
    assert (entry["name"], entry["display_name"]) == ("V3Doubles", "Twice")


async def test_validator_refuses_in_its_own_words_and_takes_over_its_input(v3: RunningServer) -> None:
    graph = {"1": node("V3Checked", even=3, kind="a"), "9": node("V3Reports", value=["1", 0])}
    answer = await refused(v3, graph)
    (problem,) = answer["node_errors"]["1"]["errors"]
    assert (problem["type"], problem["details"]) == ("custom_validation_failed", "even - 3 is odd")
    # What the validator names is its own affair: 12 is beyond the maximum. What it does not name is not.
    assert shown(await run(v3, {**graph, "1": node("V3Checked", even=12, kind="b")})) == ["12"]
    answer = await refused(v3, {**graph, "1": node("V3Checked", even=2, kind="c")})
    assert [each["type"] for each in answer["node_errors"]["1"]["errors"]] == ["value_not_in_list"]


async def test_node_runs_again_only_if_its_fingerprint_changes(v3: RunningServer) -> None:
    def graph(token: int) -> Graph:
        return {"1": node("V3Fingerprint", token=token), "9": node("V3Reports", value=["1", 0])}

    await run(v3, graph(1))
    assert "1" in (await run(v3, graph(1))).cached_nodes()
    assert "1" in (await run(v3, graph(2))).executed_nodes()
    await run(v3, graph(-1))
    assert "1" in (await run(v3, graph(-1))).executed_nodes()


async def test_hidden_inputs_are_those_of_the_prompt(v3: RunningServer) -> None:
    graph = {"4": node("V3Hidden"), "9": node("V3Reports", value=["4", 0])}
    result = await run(v3, graph, extra_data={"extra_pnginfo": {"workflow": {"id": 5}}})
    assert json.loads(shown(result)[0]) == ["4", ["4", "9"], {"workflow": {"id": 5}}, "V3Hidden", None]


async def test_lists_reach_a_node_that_takes_them_and_come_out_as_items(v3: RunningServer) -> None:
    graph = {
        "1": node("V3Lists", numbers=3, times=2),
        "2": node("V3Lists", numbers=["1", 0], times=10),
        "8": node("V3Reports", value=["2", 1]),
        "9": node("V3Reports", value=["2", 0]),
    }
    result = await run(v3, graph)
    assert shown(result) == ["60", "60", "60", "60"]
    assert shown(result, "8") == ["2"]


async def test_state_on_the_class_is_an_error_that_says_so(v3: RunningServer) -> None:
    result = await run(v3, {"1": node("V3StatefulTry", a=1), "9": node("V3Reports", value=["1", 0])})
    assert result.outcome == "execution_error"
    error = next(data for kind, data in result.messages if kind == "execution_error")
    assert error["exception_type"] == "AttributeError"
    assert "keep no state" in error["exception_message"]
    assert error["node_id"] == "1"


async def test_inputs_grow_with_what_is_submitted(v3: RunningServer) -> None:
    one = node("V3AsyncAdd", a=1, b=0)
    grown = node("V3AutogrowSum", numbers__number0=["1", 0], numbers__number1=5, numbers__number4=["1", 0])
    reports = {"8": node("V3Reports", value=["2", 1]), "9": node("V3Reports", value=["2", 0])}
    result = await run(v3, {"1": one, "2": grown, **reports})
    assert shown(result) == ["7"]
    assert shown(result, "8") == ["number0,number1,number4"]


async def test_grown_inputs_are_validated_one_by_one(v3: RunningServer) -> None:
    grown = node("V3AutogrowSum", numbers__number0=-1, numbers__number3="many")
    answer = await refused(v3, {"2": grown, "9": node("V3Reports", value=["2", 0])})
    problems = {each["extra_info"]["input_name"]: each["type"] for each in answer["node_errors"]["2"]["errors"]}
    assert problems == {
        "numbers.number0": "value_smaller_than_min",
        "numbers.number1": "required_input_missing",
        "numbers.number3": "invalid_input_type",
    }


async def test_chosen_key_brings_its_inputs_nested(v3: RunningServer) -> None:
    def graph(**inputs: Any) -> Graph:
        return {"1": node("V3ComboMode", **inputs), "9": node("V3Reports", value=["1", 0])}

    full = graph(mode="on", mode__strength=0.5, mode__kind="y", mode__kind__depth=3)
    nested = {"mode": "on", "strength": 0.5, "kind": {"kind": "y", "depth": 3}}
    assert json.loads(shown(await run(v3, full))[0]) == nested
    # What belongs to another choice is dropped.
    assert json.loads(shown(await run(v3, graph(mode="off", mode__strength=0.5)))[0]) == {"mode": "off"}
    answer = await refused(v3, graph(mode="on", mode__kind="y", mode__kind__depth=9))
    problems = {each["extra_info"]["input_name"]: each["type"] for each in answer["node_errors"]["1"]["errors"]}
    assert problems == {"mode.strength": "required_input_missing", "mode.kind.depth": "value_bigger_than_max"}
    answer = await refused(v3, graph(mode="sideways"))
    assert [each["type"] for each in answer["node_errors"]["1"]["errors"]] == ["value_not_in_list"]


async def test_group_is_a_list_of_its_rows(v3: RunningServer) -> None:
    rows = node("V3Rows", rows__0__name="a", rows__0__count=1, rows__1__name="b", rows__1__count=["1", 0])
    graph = {"1": node("V3AsyncAdd", a=5, b=0), "2": rows, "9": node("V3Reports", value=["2", 0])}
    assert json.loads(shown(await run(v3, graph))[0]) == [{"name": "a", "count": 1}, {"name": "b", "count": 5}]
    answer = await refused(v3, {"2": node("V3Rows", rows__1__count=-1), "9": node("V3Reports", value=["2", 0])})
    problems = {each["extra_info"]["input_name"]: each["type"] for each in answer["node_errors"]["2"]["errors"]}
    assert problems == {
        "rows.0.name": "required_input_missing",
        "rows.0.count": "required_input_missing",
        "rows.1.count": "value_smaller_than_min",
    }


async def test_lazy_input_that_is_not_asked_for_never_runs(v3: RunningServer) -> None:
    graph = {
        "1": node("V3AsyncAdd", a=31, b=0),
        "2": node("V3AsyncAdd", a=32, b=0),
        "3": node("V3Switch", choice=True, on_false=["1", 0], on_true=["2", 0]),
        "9": node("V3Reports", value=["3", 0]),
    }
    result = await run(v3, graph)
    assert shown(result) == ["32"]
    assert "1" not in result.executed_nodes()


async def test_lazy_parts_are_asked_for_by_their_submitted_names(v3: RunningServer) -> None:
    graph = {
        **{str(index): node("V3AsyncAdd", a=value, b=0) for index, value in ((1, 0), (2, 41), (3, 42))},
        "5": node("V3LazyRows", values__a=["1", 0], values__b=["2", 0], values__c=["3", 0]),
        "9": node("V3Reports", value=["5", 0]),
    }
    result = await run(v3, graph)
    assert shown(result) == ["41"]
    assert "3" not in result.executed_nodes()


async def test_blocked_execution_holds_up_what_is_behind_it(v3: RunningServer) -> None:
    graph = {
        "1": node("V3Blocks", message="no further"),
        "2": node("V3BlocksItem", a=8),
        "7": node("V3Reports", value=["1", 1]),
        "8": node("V3Reports", value=["2", 1]),
        "9": node("V3Reports", value=["2", 0]),
    }
    result = await run(v3, graph)
    assert shown(result) == ["8"]
    assert set(result.history["outputs"]) == {"9"}
    errors = [data for kind, data in result.messages if kind == "execution_error"]
    assert [(data["node_id"], data["exception_type"]) for data in errors] == [("7", "ExecutionBlocked")]
    assert "no further" in errors[0]["exception_message"]


async def test_node_expands_to_others_and_is_cached_as_a_whole(v3: RunningServer) -> None:
    graph = {
        "1": node("V3AsyncAdd", a=1, b=1),
        "2": node("V3Expands", start=["1", 0], times=3),
        "8": node("V3Reports", value=["2", 1]),
        "9": node("V3Reports", value=["2", 0]),
    }
    result = await run(v3, graph)
    assert (shown(result), shown(result, "8")) == (["32"], ["3"])
    again = await run(v3, graph)
    assert shown(again) == ["32"]
    assert {"1", "2"} <= set(again.cached_nodes())


async def test_picture_progress_and_preview_are_seen(v3: RunningServer) -> None:
    graph = {"1": node("V3Previews", level=0.5)}
    async with Client(v3.url) as client:
        await client.wait_for_workers()
        workflow = {"extra_pnginfo": {"workflow": {"id": 6}}}
        result = await client.run(graph, extra_data={**workflow, "preview_method": "auto"})
        (entry,) = result.images()
        content = await client.image(entry)
    assert result.outcome == "execution_success"
    assert entry["type"] == "temp"
    assert b'{"id": 6}' in content
    assert b"V3Previews" in content
    told = [(data["value"], data["max"]) for kind, data in result.messages if kind == "progress"]
    assert told == [(1, 2), (2, 2)]
    assert len(result.previews) == 1
    assert result.previews[0].startswith(b"\xff\xd8")


async def test_sounds_are_saved_and_served(v3: RunningServer) -> None:
    graph = {"1": node("V3Sounds")}
    async with Client(v3.url) as client:
        await client.wait_for_workers()
        result = await client.run(graph)
        items = result.history["outputs"]["1"]["audio"]
        assert [(item["filename"], item["subfolder"], item["type"]) for item in items] == [
            ("sound_00001_.flac", "sub", "output"),
            ("sound_00002_.flac", "sub", "output"),
        ]
        content = await client.image(items[1])
    assert content.startswith(b"fLaC")
    assert b"V3Sounds" in content


async def test_stopped_prompt_ends_an_async_node_that_tells_how_far_it_is(v3: RunningServer) -> None:
    graph = {"1": node("V3Waits", seed=1), "9": node("V3Reports", value=["1", 0])}
    async with Client(v3.url) as client:
        await client.wait_for_workers()
        prompt_id = await client.submit(graph)
        async for message in client.socket:
            if message.type is aiohttp.WSMsgType.TEXT and json.loads(message.data)["type"] == "progress":
                break
        await client.post("/interrupt", {})
        result = await client.listen(prompt_id)
    assert result.outcome == "execution_interrupted"


async def test_files_of_one_tenant_are_in_folders_of_its_own(tmp_path: Path) -> None:
    shutil.copytree(PACK, tmp_path / "custom_nodes" / "v3", ignore=shutil.ignore_patterns("__pycache__"))
    tokens = {name: add_tenant(tmp_path, name) for name in ("alice", "bob")}
    running = RunningServer.start(ServerOptions(tmp_path))
    try:
        async with (
            Client(running.url, token=tokens["alice"]) as alice,
            Client(running.url, token=tokens["bob"]) as bob,
        ):
            result = await alice.run({"1": node("V3Sounds"), "2": node("V3Previews", level=1.0)})
            assert result.outcome == "execution_success"
            (picture,) = result.images()
            assert await alice.image(picture)
            sounds = result.history["outputs"]["1"]["audio"]
            assert await alice.image(sounds[0])
            for entry in (picture, sounds[0]):
                with pytest.raises(aiohttp.ClientResponseError, match="404"):
                    await bob.image(entry)
            # Bob's numbers begin at one: he does not even see how many files Alice has.
            own = (await bob.run({"1": node("V3Sounds")})).history["outputs"]["1"]["audio"]
            assert own[0]["filename"] == "sound_00001_.flac"
    finally:
        running.stop()
