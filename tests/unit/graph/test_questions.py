"""Two-phase validation: what validators and change tokens of another process say."""

from __future__ import annotations

import math
from typing import Any

from comfyserverless.core.ids import NodeId
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec, RemoteCheck
from comfyserverless.graph.plan import Link, Plan, Validation
from comfyserverless.graph.questions import Question, token_questions
from comfyserverless.graph.signature import signatures
from comfyserverless.graph.validation import validate
from comfyserverless.nodes.registry import Registry
from comfyserverless.nodes.specs import socket
from tests.support.graph_fakes import FakeCatalog, node_class
from tests.support.graph_prompts import Prompt, node

NUMBER = InputSpec("number", "INT", {"min": 0, "max": 9})
SOURCE = node_class("Source", outputs="INT")
SHOW = node_class("Show", socket("image", "IMAGE"), outputs="", output_node=True)


def checked(check: RemoteCheck, **more: Any) -> NodeDeclaration:
    return node_class("Checked", NUMBER, socket("image", "IMAGE"), output_node=True, remote_check=check, **more)


def read(prompt: Prompt, *classes: NodeDeclaration, **more: Any) -> Validation:
    known = {each.name: each for each in (SOURCE, SHOW, *classes)}
    return validate(prompt, Registry(known.values()), FakeCatalog(), **more)


def types_of(validation: Validation) -> dict[str, list[tuple[str, str]]]:
    return {
        node_id: [(each["type"], each["extra_info"]["input_name"]) for each in entry["errors"]]
        for node_id, entry in validation.node_errors.items()
    }


PROMPT = {"1": node("Source"), "2": node("Checked", number="12", image=["1", 0])}


def test_validator_elsewhere_is_asked_with_literals_as_they_were_read_and_types_of_links() -> None:
    validation = read(PROMPT, checked(RemoteCheck(frozenset({"number"}), takes_types=True)))
    question = Question(NodeId("2"), "Checked", {"number": 12, "image": None}, {"image": "INT"})
    assert validation.questions == (question,)
    assert validation.node_errors == {}, "its bounds and the type of its link are left to it"


def test_answer_makes_problems_of_the_inputs_that_it_names() -> None:
    check = RemoteCheck(frozenset({"number"}), takes_types=True)
    validation = read(PROMPT, checked(check), answers={"2": [["number", "too odd"]]})
    assert validation.questions == ()
    assert types_of(validation) == {"2": [("custom_validation_failed", "number")]}
    assert validation.node_errors["2"]["errors"][0]["details"] == "number - too odd"


def test_answer_without_a_name_is_repeated_for_every_input_that_was_passed() -> None:
    prompt = {"1": node("Source"), "2": node("Checked", number=1, image=["1", 0])}
    named = RemoteCheck(frozenset({"number"}))
    everything = RemoteCheck(takes_all=True, takes_types=True)
    answers = {"2": [["", "no"]]}
    assert types_of(read(prompt, checked(named), answers=answers))["2"] == [
        ("return_type_mismatch", "image"),
        ("custom_validation_failed", "number"),
    ]
    assert [name for _, name in types_of(read(prompt, checked(everything), answers=answers))["2"]] == [
        "number",
        "image",
        "input_types",
    ]


def test_answer_of_a_validator_that_raised_is_an_error_of_its_own_kind() -> None:
    answers = {"2": [["", "cannot look", "RuntimeError"]]}
    check = RemoteCheck(takes_all=True, takes_types=True)
    (error,) = read(PROMPT, checked(check), answers=answers).node_errors["2"]["errors"]
    assert (error["type"], error["details"]) == ("exception_during_validation", "cannot look")
    assert error["extra_info"]["exception_type"] == "RuntimeError"


def test_good_answer_gives_a_plan_and_no_more_questions() -> None:
    check = RemoteCheck(takes_all=True, takes_types=True)
    first = read(PROMPT, checked(check))
    answers = {str(question.node): [] for question in first.questions}
    second = read(PROMPT, checked(check), answers=answers)
    assert second.questions == ()
    assert second.plan is not None


def test_bounds_and_types_count_where_the_validator_names_others() -> None:
    validation = read(PROMPT, checked(RemoteCheck(frozenset({"other"}))))
    assert types_of(validation) == {
        "2": [("value_bigger_than_max", "number"), ("return_type_mismatch", "image")]
    }
    assert len(validation.questions) == 1, "it is asked although earlier checks failed"


def test_declaration_of_a_single_node_goes_before_that_of_its_class() -> None:
    wider = node_class("Show", InputSpec("image", "ANYTHING", matches_any=True), output_node=True)
    prompt = {"1": node("Source"), "2": node("Show", image=["1", 0]), "3": node("Show", image=["1", 0])}
    validation = read(prompt, overrides={"2": wider})
    assert types_of(validation) == {"3": [("return_type_mismatch", "image")]}
    assert validation.plan is not None
    assert validation.plan.nodes[NodeId("2")].declaration is wider


def test_output_that_matches_any_type_feeds_every_input() -> None:
    wild = NodeDeclaration("Wild", SOURCE.lower, (), (OutputSpec("whatever", matches_any=True),))
    assert read({"1": node("Wild"), "2": node("Show", image=["1", 0])}, wild).node_errors == {}


def _numbered(submitted: Any) -> list[InputSpec]:
    if "x" in submitted:
        raise ValueError("x fits no input")
    return [socket(name, "INT") for name in submitted]


def test_inputs_that_depend_on_what_was_submitted_are_checked_like_others() -> None:
    dynamic = node_class("Dynamic", output_node=True, dynamic_inputs=_numbered)
    validation = read(
        {"1": node("Source"), "2": node("Dynamic", i0=["1", 0], i1="a"), "3": node("Dynamic", x=1)}, dynamic
    )
    assert types_of(validation) == {"2": [("invalid_input_type", "i1")], "3": [("invalid_dynamic_input", "")]}


def test_undeclared_links_are_kept_for_classes_that_take_them_and_undeclared_literals_only_for_the_key() -> (
    None
):
    prompt = {"1": node("Source"), "2": node("Loose", more=["1", 0], text="a")}
    loose = node_class("Loose", output_node=True, takes_undeclared_links=True)
    plan = read(prompt, loose).plan
    assert plan is not None
    assert plan.nodes[NodeId("2")].inputs["more"] == Link(NodeId("1"), 0)
    strict = read(prompt, node_class("Loose", output_node=True)).plan
    assert strict is not None
    assert "more" not in strict.nodes[NodeId("2")].inputs


def plan_with_tokens(**first: Any) -> Plan:
    prompt = {"1": {**node("Token", number=1), **first}, "2": node("Show", image=["1", 0])}
    plan = read(prompt, node_class("Token", NUMBER, outputs="IMAGE", has_remote_token=True)).plan
    assert plan is not None
    return plan


def read_token(plan: Plan, token: Any) -> Any:
    return signatures(plan, FakeCatalog(), {NodeId("1"): token})[NodeId("2")]


def test_token_of_another_process_is_part_of_the_key() -> None:
    plan = plan_with_tokens()
    asked = token_questions(plan.nodes.values(), plan.prompt)
    assert asked == [Question(NodeId("1"), "Token", {"number": 1}, {})]
    assert read_token(plan, "a") == read_token(plan, "a") != read_token(plan, "b")
    assert read_token(plan, math.nan) is None
    assert signatures(plan, FakeCatalog())[NodeId("1")] is None, "nobody has asked"


def test_submitted_token_is_not_asked_for() -> None:
    plan = plan_with_tokens(is_changed="mine")
    assert token_questions(plan.nodes.values(), plan.prompt) == []
    assert read_token(plan, "ignored") is not None
