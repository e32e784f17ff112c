"""Every rule of ComfyUI's execution, with a pack in a real server, as a client on the websocket sees it."""

from __future__ import annotations

import asyncio
import io
import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support.client import Client, RunResult
from tests.support.graph_prompts import Prompt, node
from tests.support.server import PATIENCE_S, RunningServer, ServerOptions

PACK = Path(__file__).parents[1] / "support" / "packs" / "semantics"


@contextmanager
def serving(base: Path, *flags: str) -> Iterator[RunningServer]:
    """Start a server with the pack."""
    shutil.copytree(PACK, base / "custom_nodes" / "semantics", ignore=shutil.ignore_patterns("__pycache__"))
    running = RunningServer.start(ServerOptions(base, flags=flags))
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Return a server with the pack."""
    with serving(tmp_path_factory.mktemp("semantics")) as running:
        yield running


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[Client]:
    """Return a client; what was cached before is forgotten."""
    async with Client(server.url) as connected:
        await connected.post("/free", {"free_memory": True})
        yield connected


def sem(kind: str, **inputs: Any) -> dict[str, Any]:
    """Return a node of the pack."""
    return node(f"Sem{kind}", **inputs)


def show(source: str, slot: int = 0) -> dict[str, Any]:
    """Return a node that shows an output."""
    return sem("Show", value=[source, slot])


def did_run(run: RunResult, *nodes: str) -> bool:
    """Tell whether all of these nodes were executed."""
    return set(nodes) <= set(run.executed_nodes())


def was_cached(run: RunResult, *nodes: str) -> bool:
    """Tell whether none of these nodes was executed."""
    return not set(nodes) & set(run.executed_nodes())


def shown(run: RunResult, name: str) -> list[Any]:
    """Return the texts that a node showed."""
    assert run.outcome == "execution_success", run.messages[-3:]
    texts: list[Any] = run.history["outputs"][name]["text"]
    return texts


def of(run: RunResult, kind: str) -> list[dict[str, Any]]:
    """List the data of the messages of one type."""
    return [data for each, data in run.messages if each == kind]


def error_of(run: RunResult) -> dict[str, Any]:
    """Return the error that ended a prompt."""
    assert run.outcome == "execution_error", run.messages[-3:]
    return of(run, "execution_error")[-1]


def finished(run: RunResult) -> list[str]:
    """List the nodes in the order in which they were finished."""
    order: list[str] = []
    for state in of(run, "progress_state"):
        order += [n for n, s in state["nodes"].items() if s["state"] == "finished" and n not in order]
    return order


async def refused(client: Client, prompt: Prompt) -> dict[str, list[tuple[str, str, str]]]:
    """Submit a prompt; returns the errors of its nodes: type, input, details."""
    _, answer = await client.post("/prompt", {"prompt": prompt, "client_id": client.client_id})
    return {
        name: [(e["type"], e["extra_info"].get("input_name", ""), e["details"]) for e in entry["errors"]]
        for name, entry in answer["node_errors"].items()
    }


# -- 3.1 validation -------------------------------------------------------------------------------


async def test_validator_looks_instead_of_the_server_at_what_it_names(client: Client) -> None:
    run = await client.run({"1": sem("Strict", value=40, other=9)})
    assert shown(run, "1") == ["40"], "beyond its bounds, and nobody minds"
    errors = await refused(client, {"1": sem("Strict", value=99, other=40)})
    assert [(kind, name) for kind, name, _ in errors["1"]] == [
        ("value_bigger_than_max", "other"),
        ("custom_validation_failed", "value"),
    ]
    assert errors["1"][1][2] == "value - above all"
    generic = await refused(client, {"1": sem("Strict", value=60, other=1)})
    assert generic["1"] == [("custom_validation_failed", "value", "value")]


async def test_validator_with_keywords_is_asked_of_all_and_its_problem_repeated_for_each(
    client: Client,
) -> None:
    assert shown(await client.run({"1": sem("Everything", value=500, other=-1)}), "1") == ["(500, -1)"]
    errors = await refused(client, {"1": sem("Everything", value=13, other=1)})
    assert [(kind, name) for kind, name, _ in errors["1"]] == [
        ("custom_validation_failed", "value"),
        ("custom_validation_failed", "other"),
    ]


async def test_validator_that_takes_types_judges_links(client: Client) -> None:
    assert shown(await client.run({"1": sem("Add", a=1, b=1), "2": sem("Types", value=["1", 0])}), "2") == ["2"]
    errors = await refused(client, {"1": sem("Whole"), "2": sem("Types", value=["1", 0])})
    assert [(kind, name) for kind, name, _ in errors["2"]] == [("custom_validation_failed", "input_types")]


async def test_validator_that_fails_is_an_error_of_its_node(client: Client) -> None:
    errors = await refused(client, {"1": sem("Broken", value=1)})
    assert errors == {"1": [("exception_during_validation", "", "cannot look")]}


async def test_class_that_cannot_say_its_inputs_is_an_error_of_its_node(client: Client) -> None:
    assert shown(await client.run({"1": sem("SpoilMood")}), "1") == ["done"]
    errors = await refused(client, {"1": sem("Moody"), "2": sem("Value", number=1), "3": show("2")})
    assert errors == {"1": [("exception_during_validation", "", "RuntimeError: no mood")]}


async def test_prompt_with_a_valid_output_runs_and_tells_of_the_others(client: Client) -> None:
    prompt = {"1": sem("Value", number=1), "2": show("1"), "3": sem("Strict", value=99, other=1)}
    status, answer = await client.post("/prompt", {"prompt": prompt, "client_id": client.client_id})
    assert (status, list(answer["node_errors"])) == (200, ["3"])
    run = await client.listen(answer["prompt_id"])
    assert (run.outcome, set(run.history["outputs"])) == ("execution_success", {"2"})


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({}, ("required_input_missing", "a")),
        ({"a": [1, 2, 3], "b": 1}, ("bad_linked_input", "a")),
        ({"a": "x", "b": 1}, ("invalid_input_type", "a")),
        ({"a": ["9", 0], "b": 1}, ("return_type_mismatch", "a")),
    ],
)
async def test_input_of_a_pack_is_checked_like_a_built_in_one(
    client: Client, inputs: dict[str, Any], expected: tuple[str, str]
) -> None:
    prompt = {"1": sem("Add", **inputs), "2": show("1"), "9": sem("Raw", source=["1", 0]), "8": show("9")}
    if inputs.get("a") == ["9", 0]:
        prompt["9"] = {
            "class_type": "EmptyImage",
            "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0},
        }
    errors = await refused(client, prompt)
    assert expected in [(kind, name) for kind, name, _ in errors["1"]]


async def test_combo_value_is_checked_and_a_wrapped_list_is_no_link(client: Client) -> None:
    errors = await refused(client, {"1": sem("Combo", choice="c", many=1)})
    assert [(kind, name) for kind, name, _ in errors["1"]] == [("value_not_in_list", "choice")]
    run = await client.run({"1": sem("Combo", choice="b", many={"__value__": ["1", 0]})})
    assert shown(run, "1") == ["b ['1', 0]"]


async def test_literals_are_converted_and_missing_optional_ones_get_no_default(client: Client) -> None:
    run = await client.run({"1": sem("Add", a="12", b=3.7), "2": show("1"), "3": sem("Value"), "4": show("3")})
    assert (shown(run, "2"), shown(run, "4")) == (["15"], ["'default'"])


async def test_undeclared_links_are_arguments_and_undeclared_literals_are_not(client: Client) -> None:
    prompt = {
        "1": sem("Value", number=4),
        "2": sem("Loose", declared=1, linked=["1", 0], plain=5),
        "3": show("2"),
    }
    assert shown(await client.run(prompt), "3") == ["\"1 {'linked': 4}\""]


async def test_only_chosen_outputs_run(client: Client) -> None:
    prompt = {"1": sem("Value", number=1), "2": show("1"), "3": show("1")}
    run = await client.run(prompt, partial_execution_targets=["3"])
    assert set(run.history["outputs"]) == {"3"}
    status, answer = await client.post("/prompt", {"prompt": prompt, "partial_execution_targets": []})
    assert (status, answer["error"]["type"]) == (400, "prompt_no_outputs")


# -- 3.2 calls ------------------------------------------------------------------------------------


async def test_node_is_mapped_over_lists_and_shorter_ones_repeat_their_last(client: Client) -> None:
    prompt = {
        "1": sem("Many", count=3),
        "2": sem("Many", count=2),
        "3": sem("Add", a=["1", 0], b=["2", 0]),
        "mapped": show("3"),
    }
    run = await client.run(prompt)
    assert shown(run, "mapped") == ["0", "2", "3"]
    assert run.executed_nodes().count("3") == 1
    assert len(of(run, "executed")) == 1
    assert run.history["outputs"]["mapped"]["calls"] == [1, 2, 3], "one instance for all calls"


async def test_node_that_takes_lists_gets_even_literals_and_hidden_inputs_as_lists(client: Client) -> None:
    prompt = {"1": sem("Many", count=2), "2": sem("Whole", value=["1", 0], text="a"), "3": show("2")}
    assert shown(await client.run(prompt), "3") == ["\"[('text', ['a']), ('value', [0, 1])] ['2']\""]


async def test_lists_of_calls_are_joined_and_plain_results_collected(client: Client) -> None:
    prompt = {"1": sem("Many", count=3), "2": sem("Spread", value=["1", 0]), "3": show("2"), "4": show("2", 1)}
    run = await client.run(prompt)
    assert (shown(run, "3"), shown(run, "4")) == (["1", "2", "2"], ["0", "-1", "-2"])


async def test_ui_of_all_calls_is_one_dict(client: Client) -> None:
    run = await client.run({"1": sem("Many", count=3), "2": sem("Uneven", value=["1", 0])})
    assert of(run, "executed")[0]["output"] == {"text": [0, 1, 2], "more": [0, 10, 20]}


async def test_built_in_nodes_are_mapped_over_lists_of_packs_and_every_call_saves_its_file(
    client: Client,
) -> None:
    prompt = {
        "1": sem("Many", count=3),
        "2": sem("Add", a=["1", 0], b=8),
        "3": node("EmptyImage", width=["2", 0], height=4, batch_size=1, color=255),
        "4": node("ImageInvert", image=["3", 0]),
        "5": node("SaveImage", images=["4", 0], filename_prefix="mapped/picture"),
    }
    run = await client.run(prompt)
    assert run.outcome == "execution_success", run.messages[-3:]
    pictures = [Image.open(io.BytesIO(await client.image(entry))) for entry in run.images()]
    assert [picture.size for picture in pictures] == [(8, 4), (9, 4), (10, 4)]
    assert {picture.getpixel((0, 0)) for picture in pictures} == {(255, 255, 0)}
    assert len({entry["filename"] for entry in run.images()}) == 3
    assert (await client.run(prompt)).executed_nodes() == []


async def test_empty_list_beside_others_is_an_index_error(client: Client) -> None:
    run = await client.run({"1": sem("Many", count=0), "2": sem("Add", a=["1", 0], b=1), "3": show("2")})
    error = error_of(run)
    assert (error["node_id"], error["exception_type"]) == ("2", "IndexError")
    assert "'a'" in error["exception_message"]


async def test_node_with_nothing_but_empty_lists_is_called_without_arguments(client: Client) -> None:
    run = await client.run({"1": sem("Many", count=0), "2": sem("Value", value=["1", 0]), "3": show("2")})
    assert shown(run, "3") == ["'default'"]


async def test_result_that_was_not_given_is_none(client: Client) -> None:
    assert shown(await client.run({"1": sem("Short"), "2": show("1", 1)}), "2") == ["None"]


async def test_hidden_inputs_tell_of_the_prompt(client: Client) -> None:
    run = await client.run(
        {"1": sem("Hidden"), "2": show("1")}, extra_data={"extra_pnginfo": {"workflow": {"id": "w"}}}
    )
    expected = "['1', '2'] 1 {'workflow': {'id': 'w'}} ['1', '1', None] SemHidden ['1', '2']"
    assert shown(run, "2") == [repr(expected)]


async def test_instance_lives_while_its_id_and_class_are_in_the_graph(client: Client) -> None:
    texts = []
    for value in (1, 2):
        texts += shown(await client.run({"7": sem("Counter", value=value), "2": show("7")}), "2")
    await client.run({"1": sem("Value", number=1), "2": show("1")})
    texts += shown(await client.run({"7": sem("Counter", value=3), "2": show("7")}), "2")
    assert texts == ["1", "2", "1"]


async def test_progress_repeats_for_each_call_of_a_mapped_node(client: Client) -> None:
    run = await client.run({"1": sem("Many", count=2), "2": sem("Progress", value=["1", 0]), "3": show("2")})
    steps = [(data["value"], data["max"]) for data in of(run, "progress") if data["node"] == "2"]
    assert steps == [(1, 2), (2, 2), (1, 2), (2, 2)]


# -- 3.3 order ------------------------------------------------------------------------------------


async def test_output_nodes_go_first_and_unreachable_ones_never(client: Client) -> None:
    prompt = {
        "1": sem("Value", number=1),
        "2": show("1"),
        "3": sem("Value", number=2),
        "4": sem("Add", a=["3", 0], b=1),
        "5": show("4"),
        "6": sem("Raise", value=1, text="unreachable"),
    }
    run = await client.run(prompt)
    assert run.executed_nodes() == ["1", "2", "3", "4", "5"]
    kinds = [kind for kind, data in run.messages if data.get("node") == "2" or kind == "execution_start"]
    assert kinds == ["execution_start", "executing", "executed"]


async def test_nodes_that_wait_for_each_other_are_a_cycle_at_the_submitted_node(client: Client) -> None:
    error = error_of(await client.run({"1": sem("Circle"), "2": show("1")}))
    assert (error["node_id"], error["exception_type"]) == ("1", "graph.DependencyCycleError")
    assert (error["traceback"], error["current_inputs"]) == ([], [])
    assert error["exception_message"].startswith("Dependency cycle detected")


# -- 3.4 lazy inputs ------------------------------------------------------------------------------


def switched(kind: str, switch: bool) -> Prompt:
    return {
        "1": sem("Value", value="left"),
        "2": sem("Value", value="right"),
        "3": sem(kind, switch=switch, on=["1", 0], off=["2", 0]),
        "4": show("3"),
    }


async def test_only_what_is_asked_for_is_evaluated_and_the_node_is_shown_again(client: Client) -> None:
    run = await client.run(switched("Switch", True))
    assert shown(run, "4") == ["('left', None)"]
    assert run.executed_nodes() == ["3", "1", "3", "4"]
    assert finished(run) == ["1", "3", "4"]
    other = await client.run(switched("Switch", False))
    assert (shown(other, "4"), did_run(other, "2"), was_cached(other, "1")) == (["(None, 'right')"], True, True)


async def test_lists_of_lazy_inputs_hold_null_until_they_are_there(client: Client) -> None:
    assert shown(await client.run(switched("ListSwitch", True)), "4") == ["(['left'], [None])"]


async def test_requests_of_mapped_calls_are_united(client: Client) -> None:
    prompt = switched("Switch", True) | {"5": sem("Many", count=2)}
    prompt["3"]["inputs"]["switch"] = ["5", 0]
    prompt["6"] = sem("Value", value=["5", 0])
    run = await client.run({**prompt, "3": sem("Switch", switch=["6", 0], on=["1", 0], off=["2", 0])})
    assert did_run(run, "1", "2")
    assert shown(run, "4") == ["('left', 'right')", "('left', 'right')"]


async def test_node_is_asked_until_it_needs_nothing_more(client: Client) -> None:
    values = {str(index): sem("Value", number=index) for index in (1, 2, 3)}
    run = await client.run({**values, "4": sem("Step", a=["1", 0], b=["2", 0], c=["3", 0]), "5": show("4")})
    assert shown(run, "5") == ["[('a', 1), ('b', 2), ('c', 3)]"]
    assert run.executed_nodes() == ["4", "1", "4", "2", "4", "3", "4", "5"]


async def test_lazy_input_that_nobody_asks_for_is_none(client: Client) -> None:
    run = await client.run({"1": sem("Value", number=1), "2": sem("Never", value=["1", 0]), "3": show("2")})
    assert (shown(run, "3"), was_cached(run, "1")) == (["None"], True)


async def test_request_for_an_input_that_is_not_there_is_an_error(client: Client) -> None:
    error = error_of(await client.run({"1": sem("Greedy"), "2": show("1")}))
    assert error["node_id"] == "1"
    assert "'other'" in error["exception_message"]


# -- 3.5 blocked values ---------------------------------------------------------------------------


async def test_blocked_node_tells_why_and_the_prompt_succeeds(client: Client) -> None:
    prompt = {
        "1": sem("Block", message="no picture"),
        "2": sem("Value", value=["1", 1]),
        "3": show("2"),
        "4": show("1"),
    }
    run = await client.run(prompt)
    assert run.outcome == "execution_success"
    (error,) = of(run, "execution_error")
    assert (error["node_id"], error["node_type"]) == ("2", "SemValue")
    assert error["exception_type"] == "ExecutionBlocked"
    assert "no picture" in error["exception_message"]
    assert (error["traceback"], error["current_inputs"], error["current_outputs"]) == ([], [], [])
    assert "timestamp" not in error
    assert set(finished(run)) == {"1", "2", "3", "4"}
    assert set(run.history["outputs"]) == {"4"}
    assert run.history["status"]["status_str"] == "success"
    assert "execution_error" not in [kind for kind, _ in run.history["status"]["messages"]]


@pytest.mark.parametrize(("kind", "inputs", "told"), [("Block", {"message": ""}, 0), ("BlockAll", {}, 2)])
async def test_whole_result_can_be_blocked_and_without_a_message_nobody_is_told(
    client: Client, kind: str, inputs: dict[str, Any], told: int
) -> None:
    run = await client.run({"1": sem(kind, **inputs), "2": show("1", 1), "3": show("1", 1 if told == 0 else 0)})
    assert (run.outcome, len(of(run, "execution_error"))) == ("execution_success", told)
    assert run.history["outputs"] == {}


async def test_blocked_items_of_a_list_hold_up_their_own_calls_only(client: Client) -> None:
    prompt = {"1": sem("BlockOdd", count=4), "2": sem("Add", a=["1", 0], b=1), "3": show("2")}
    assert shown(await client.run(prompt), "3") == ["1", "3"]


# -- 3.6 expansion --------------------------------------------------------------------------------


async def test_node_expands_to_its_own_class_and_events_say_where_it_belongs(client: Client) -> None:
    run = await client.run({"1": sem("Count", n=2), "2": show("1")})
    assert shown(run, "2") == ["2"]
    executing = [(data["node"], data["display_node"]) for data in of(run, "executing") if data["node"]]
    added = [name for name, _ in executing if "." in name]
    assert executing[0] == ("1", "1")
    assert len(added) == 4
    assert {shown_at for name, shown_at in executing if name in added} == {"1"}
    assert [name for name, _ in executing].count("1") == 1, "it is not shown again"
    states = of(run, "progress_state")[-1]["nodes"]
    assert {states[name]["real_node_id"] for name in added} == {"1"}
    assert {states[name]["parent_node_id"] for name in added} == {"1", added[0]}
    assert finished(run)[-2:] == ["1", "2"]


async def test_second_run_does_not_expand_again_and_inner_results_are_used(client: Client) -> None:
    await client.run({"1": sem("Count", n=3), "2": show("1")})
    again = await client.run({"1": sem("Count", n=3), "2": show("1")})
    assert again.executed_nodes() == []
    assert set(again.cached_nodes()) == {"1", "2"}
    more = await client.run({"1": sem("Count", n=4), "2": show("1")})
    assert shown(more, "2") == ["4"]
    assert len(more.executed_nodes()) == 4, "its own, one of its class, one sum, and the one that shows it"


async def test_outputs_inside_run_and_are_shown_at_the_node_that_was_said(client: Client) -> None:
    run = await client.run({"1": sem("Showing", value=3), "2": show("1"), "9": sem("Show", value=1)})
    executed = of(run, "executed")
    grown = next(data for data in executed if data["node"] == "1")
    assert grown["output"] == {"text": ["grows"]}
    inner = next(data for data in executed[executed.index(grown) :] if "." in data["node"])
    assert (inner["display_node"], inner["output"]["text"]) == ("9", ["3"])
    assert len([data for data in executed if data["node"] == "1"]) == 1
    assert run.history["meta"][inner["node"]] == {
        "node_id": inner["node"],
        "display_node": "9",
        "parent_node": "1",
        "real_node_id": "1",
    }
    assert not any("SemRaise" in str(data) for data in of(run, "execution_error")), "nothing needs it"


@pytest.mark.parametrize(("kind", "told"), [("Twin", "'9'"), ("Stranger", "SemNothing")])
async def test_expansion_that_cannot_be_is_an_error_that_says_why(client: Client, kind: str, told: str) -> None:
    error = error_of(await client.run({"1": sem(kind), "2": show("1"), "9": sem("Show", value=1)}))
    assert error["node_id"] == "1"
    assert told in error["exception_message"]


async def test_error_inside_is_shown_at_the_submitted_node(client: Client) -> None:
    error = error_of(await client.run({"1": sem("Wrong"), "2": show("1")}))
    assert (error["node_id"], error["node_type"], error["exception_type"]) == ("1", "SemWrong", "ValueError")
    assert error["exception_message"] == "inside\n"
    assert error["current_inputs"]["value"] == [999], "nobody has checked its bounds"


async def test_added_node_knows_where_it_comes_from(client: Client) -> None:
    run = await client.run({"1": sem("Inner"), "2": show("1")})
    (text,) = shown(run, "2")
    inner = next(name for name in run.executed_nodes() if "." in name)
    assert f" {inner} None ['1', '1', '1'] SemHidden " in text
    assert text.startswith("\"['1', '2'] "), "PROMPT is what was submitted"
    assert inner in text.rpartition("SemHidden")[2], "DYNPROMPT knows what was added"


async def test_raw_link_can_be_spliced_into_a_new_graph(client: Client) -> None:
    prompt = {"5": sem("Value", number=7), "1": sem("Raw", source=["5", 0]), "2": show("1"), "3": show("1", 1)}
    run = await client.run(prompt)
    assert (shown(run, "2"), shown(run, "3")) == (["107"], ["\"['5', 0]\""])


async def test_objects_can_be_inputs_of_added_nodes(client: Client) -> None:
    assert shown(await client.run({"1": sem("Objects"), "2": show("1")}), "2") == ["{1, 2}"]


async def test_hundred_nested_expansions_work(client: Client) -> None:
    assert shown(await client.run({"1": sem("Count", n=100), "2": show("1")}), "2") == ["100"]


# -- 3.7 coroutines -------------------------------------------------------------------------------


async def test_coroutines_run_side_by_side_and_others_meanwhile(client: Client) -> None:
    prompt = {
        "1": sem("Meet", name=(name := uuid.uuid4().hex), count=2, value=1),
        "2": sem("Meet", name=name, count=2, value=2),
        "3": show("1"),
        "4": show("2"),
        "5": sem("Value", number=1),
        "6": show("5"),
        "7": sem("Open", name=name, value=["6", 0]),
    }
    run = await client.run(prompt)
    assert (shown(run, "3"), shown(run, "4")) == (["1"], ["2"]), "each waited for the other, and both for 7"
    assert sorted(run.executed_nodes()) == ["1", "2", "3", "4", "5", "6", "7"]
    assert finished(run)[:2] == ["5", "6"]


async def test_mapped_coroutine_runs_its_calls_side_by_side_and_the_first_failure_ends_it(
    client: Client,
) -> None:
    run = await client.run({"1": sem("Many", count=3), "2": sem("SlowRaise", value=["1", 0]), "3": show("2")})
    error = error_of(run)
    assert (error["node_id"], error["exception_message"]) == ("2", "later, at 1\n")


# -- 3.8 caching ----------------------------------------------------------------------------------


async def test_identical_prompt_is_cached_and_outputs_are_shown_again(client: Client) -> None:
    prompt = {"1": sem("Value", number=1), "2": show("1")}
    await client.run(prompt)
    again = await client.run(prompt)
    assert again.executed_nodes() == []
    assert sorted(again.cached_nodes()) == ["1", "2"]
    assert [data["output"]["text"] for data in of(again, "executed")] == [["1"]]
    assert again.history["outputs"]["2"]["text"] == ["1"]


async def test_ids_do_not_matter_and_equal_nodes_share_a_result(client: Client) -> None:
    await client.run({"1": sem("Value", number=1), "2": show("1")})
    other = await client.run({"a": sem("Value", number=1), "b": show("a")})
    assert other.executed_nodes() == []
    twins = await client.run(
        {"1": sem("Counter", value=6), "2": sem("Counter", value=6), "3": show("1"), "4": show("2")}
    )
    assert (shown(twins, "3"), shown(twins, "4")) == (["1"], ["1"])
    assert len({"1", "2"} & set(twins.executed_nodes())) == 1


async def test_changed_literal_runs_what_depends_on_it_and_nothing_else(client: Client) -> None:
    def prompt(number: int) -> Prompt:
        return {
            "1": sem("Value", number=number),
            "2": show("1"),
            "3": sem("Value", number=-1),
            "4": show("3"),
        }

    await client.run(prompt(1))
    run = await client.run(prompt(2))
    assert (did_run(run, "1", "2"), was_cached(run, "3", "4")) == (True, True)


async def test_token_that_is_not_a_number_means_always_and_true_does_not(client: Client) -> None:
    prompt = {
        "1": sem("Always"),
        "2": show("1"),
        "3": sem("SaysTrue"),
        "4": show("3"),
        "5": sem("BadToken"),
        "6": show("5"),
    }
    await client.run(prompt)
    run = await client.run(prompt)
    assert (did_run(run, "1", "2", "5", "6"), was_cached(run, "3", "4")) == (True, True)


async def test_changed_token_runs_the_node_again(client: Client) -> None:
    prompt = {"1": sem("Token", value=5), "2": show("1")}
    await client.run(prompt)
    assert (await client.run(prompt)).executed_nodes() == []
    await client.run({**prompt, "3": sem("SetToken", token=1)})
    assert did_run(await client.run(prompt), "1", "2")


async def test_node_with_a_result_of_its_own_is_not_shared_with_an_equal_one(client: Client) -> None:
    prompt = {"1": sem("Once"), "2": sem("Once"), "3": show("1"), "4": show("2")}
    run = await client.run(prompt)
    assert did_run(run, "1", "2")
    assert (await client.run(prompt)).executed_nodes() == []
    assert did_run(await client.run({"7": sem("Once"), "3": show("7")}), "7")


async def test_what_was_done_before_an_error_stays_cached(client: Client) -> None:
    prompt = {"1": sem("Value", number=77), "2": sem("Raise", value=["1", 0], text="no"), "3": show("2")}
    await client.run(prompt)
    assert was_cached(await client.run(prompt), "1")


@pytest.mark.parametrize(("flags", "keeps"), [(("--cache-none",), False), (("--cache-lru", "50"), True)])
async def test_other_cache_modes_keep_nothing_or_more(
    tmp_path: Path, flags: tuple[str, ...], keeps: bool
) -> None:
    prompt = {
        **switched("Switch", True),
        "5": sem("Count", n=2),
        "6": show("5"),
        "7": sem("Many", count=2),
        "8": sem("Counter", value=["7", 0]),
        "9": show("8"),
    }
    with serving(tmp_path, *flags) as running:
        async with Client(running.url) as client:
            first = await client.run(prompt)
            await client.run({"1": sem("Value", number=1), "2": show("1")})
            again = await client.run(prompt)
    for run in (first, again):
        assert (shown(run, "4"), shown(run, "6")) == (["('left', None)"], ["2"])
    assert (shown(first, "9"), shown(again, "9")) == (["1", "2"], ["1", "2"])
    assert sorted(again.cached_nodes()) == (["1", "3", "4", "5", "6", "7", "8", "9"] if keeps else [])
    assert sorted(again.executed_nodes()) == ([] if keeps else sorted(first.executed_nodes()))


# -- 3.9 errors and interruption ------------------------------------------------------------------


async def test_error_says_what_the_node_was_given_and_where_it_failed(client: Client) -> None:
    prompt = {
        "1": sem("Value", number=5),
        "2": show("1"),
        "3": sem("Raise", value=["1", 0], text="no way"),
        "4": show("3"),
    }
    run = await client.run(prompt)
    error = error_of(run)
    assert (error["node_id"], error["node_type"]) == ("3", "SemRaise")
    assert (error["exception_type"], error["exception_message"]) == ("ValueError", "no way\n")
    assert error["current_inputs"] == {"value": [5], "text": ["no way"]}
    assert set(error["executed"]) == {"1", "2"} == set(error["current_outputs"])
    assert any("calling.py" in line and "raise ValueError" in line for line in error["traceback"])
    assert run.history["status"]["status_str"] == "error"
    assert not run.history["status"]["completed"]
    assert shown_anyway(run, "2") == ["5"], "what was shown before stays"


def shown_anyway(run: RunResult, name: str) -> list[Any]:
    texts: list[Any] = run.history["outputs"][name]["text"]
    return texts


@pytest.mark.parametrize("kind", ["Patient", "Slow"])
async def test_interrupt_ends_a_node_that_runs(client: Client, kind: str) -> None:
    prompt = {"1": sem(kind, seconds=3600.0) if kind == "Slow" else sem(kind), "2": show("1")}
    prompt_id = await client.submit(prompt)
    async with asyncio.timeout(PATIENCE_S):
        async for message in client.socket:
            if message.type.name == "TEXT" and message.json()["data"].get("node") == "1":
                break
        await client.post("/interrupt", {"prompt_id": prompt_id})
        run = await client.listen(prompt_id)
    assert run.outcome == "execution_interrupted"
    assert of(run, "execution_interrupted")[0]["node_id"] == "1"
    after = await client.run({"1": sem("Value", number=3), "2": show("1")})
    assert shown(after, "2") == ["3"], "the next prompt runs"
