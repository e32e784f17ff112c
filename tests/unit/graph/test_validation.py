"""Validation beyond what was recorded: coercion, links, cycles, partial acceptance, any JSON, large graphs."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyserverless.core.samplers import SAMPLER_NAMES
from comfyserverless.graph.declaration import FileCatalog, InputSpec, OutputSpec
from comfyserverless.graph.plan import Constant, Link, Plan, Validation
from comfyserverless.graph.validation import validate
from comfyserverless.nodes.specs import combo, socket, whole
from tests.support.costs import is_linear
from tests.support.graph_fakes import RECORDED_CLASSES, FakeCatalog, node_class, with_builtin
from tests.support.graph_prompts import Prompt, image_chain, node, text_to_image

BOXES = node_class(
    "Boxes",
    InputSpec("flag", "BOOLEAN", {}, "optional"),
    InputSpec("words", "STRING", {}, "optional"),
    InputSpec("ratio", "FLOAT", {}, "optional"),
    InputSpec("count", "INT", {}, "optional"),
    InputSpec("curve", "CURVE", {}, "optional"),
    InputSpec("many", ("a", "b"), {"multiselect": True}, "optional"),
    InputSpec("modern", "COMBO", {"options": ["x", 1]}, "optional"),
    output_node=True,
)
CLASSES = with_builtin(*RECORDED_CLASSES, BOXES)


def check(prompt: Any, targets: list[str] | None = None, catalog: FileCatalog | None = None) -> Validation:
    return validate(prompt, CLASSES, catalog or FakeCatalog(), targets)


def accepted(prompt: Any, targets: list[str] | None = None) -> Plan:
    outcome = check(prompt, targets)
    assert outcome.plan is not None, (outcome.error, outcome.node_errors)
    return outcome.plan


def errors_of(prompt: Any, node_id: str) -> list[dict[str, Any]]:
    errors: list[dict[str, Any]] = check(prompt).node_errors[node_id]["errors"]
    return errors


def boxes(**inputs: Any) -> Mapping[str, Any]:
    """Return the literals of an accepted Boxes node, by input."""
    plan = accepted({"1": node("Boxes", **inputs)})
    assert plan.prompt["1"]["inputs"] == {
        name: value.value for name, value in plan.nodes["1"].inputs.items() if isinstance(value, Constant)
    }
    inputs_after: dict[str, Any] = plan.prompt["1"]["inputs"]
    return inputs_after


@pytest.mark.parametrize(
    ("name", "submitted", "coerced"),
    [
        ("count", "12", 12),
        ("count", 3.7, 3),
        ("count", True, 1),
        ("ratio", "1e2", 100.0),
        ("ratio", 2, 2.0),
        ("words", 5, "5"),
        ("words", None, "None"),
        ("words", {"a": 1}, "{'a': 1}"),
        ("flag", "false", True),
        ("flag", 0, False),
        ("flag", "", False),
        ("curve", {"__value__": [1, 2], "__type__": "CURVE"}, [1, 2]),
        ("curve", {"__value__": ["1", 0]}, ["1", 0]),
        ("count", {"__value__": "7"}, 7),
        ("many", {"__value__": ["a", "b"]}, ["a", "b"]),
        ("many", "b", "b"),
        ("modern", 1.0, 1.0),
    ],
)
def test_literal_is_coerced_and_written_back(name: str, submitted: Any, coerced: Any) -> None:
    value = boxes(**{name: submitted})[name]
    assert value == coerced
    assert type(value) is type(coerced)


@pytest.mark.parametrize(
    ("name", "submitted", "kind"),
    [
        ("count", "1.5", "invalid_input_type"),
        ("count", {}, "invalid_input_type"),
        ("count", math.inf, "invalid_input_type"),
        ("ratio", None, "invalid_input_type"),
        ("ratio", math.nan, "invalid_input_type"),
        ("ratio", "inf", "invalid_input_type"),
        ("ratio", 10**400, "invalid_input_type"),
        ("many", {"__value__": ["a", "c"]}, "value_not_in_list"),
        ("many", "c", "value_not_in_list"),
        ("modern", "y", "value_not_in_list"),
        ("modern", {"x": 1}, "value_not_in_list"),
        ("curve", [1], "bad_linked_input"),
        ("curve", ["1", 0, 0], "bad_linked_input"),
        ("curve", [], "bad_linked_input"),
    ],
)
def test_bad_literal_is_one_error_naming_the_input(name: str, submitted: Any, kind: str) -> None:
    (error,) = errors_of({"1": node("Boxes", **{name: submitted})}, "1")
    assert error["type"] == kind
    assert error["extra_info"]["input_name"] == name
    assert error["details"].startswith(name)
    json.dumps(error, allow_nan=False)


def test_refused_member_of_a_multiselect_is_named() -> None:
    (error,) = errors_of({"1": node("Boxes", many={"__value__": ["a", "c"]})}, "1")
    assert error["extra_info"]["received_value"] == ["c"]


def test_every_failing_input_of_a_node_is_told_in_declared_order() -> None:
    errors = errors_of(text_to_image(steps=0, cfg="x", denoise=2, sampler_name="nope"), "3")
    assert [(error["extra_info"]["input_name"], error["type"]) for error in errors] == [
        ("steps", "value_smaller_than_min"),
        ("cfg", "invalid_input_type"),
        ("sampler_name", "value_not_in_list"),
        ("denoise", "value_bigger_than_max"),
    ]


def test_seed_takes_the_whole_range_of_64_bits() -> None:
    accepted(text_to_image(seed=2**64 - 1))
    assert errors_of(text_to_image(seed=2**64), "3")[0]["type"] == "value_bigger_than_max"


@pytest.mark.parametrize("name", SAMPLER_NAMES)
def test_every_sampler_is_accepted(name: str) -> None:
    accepted(text_to_image(sampler_name=name))


def test_sampler_given_by_a_link_is_not_checked_here() -> None:
    anything = node_class("Anything", outputs="*")
    prompt = text_to_image(sampler_name=["a", 0]) | {"a": node("Anything")}
    assert validate(prompt, with_builtin(anything), FakeCatalog()).plan is not None


def test_plan_holds_links_constants_titles_and_targets() -> None:
    prompt = text_to_image()
    prompt["6"]["_meta"] = {"title": "Positive"}
    plan = accepted(prompt)
    assert list(plan.nodes) == list(prompt)
    assert plan.targets == ("9",)
    assert plan.nodes["6"].title == "Positive"
    assert plan.nodes["6"].inputs == {"text": Constant("a cat"), "clip": Link("4", 1)}
    assert plan.nodes["3"].declaration.name == "KSampler"
    assert plan.prompt["3"]["inputs"]["cfg"] == 7.0
    assert plan.prompt["6"]["_meta"] == {"title": "Positive"}


def test_callers_prompt_is_left_as_it_was() -> None:
    prompt = text_to_image(steps="5", cfg={"__value__": "3"})
    before = copy.deepcopy(prompt)
    plan = accepted(prompt)
    assert prompt == before
    assert plan.prompt["3"]["inputs"]["steps"] == 5


def test_undeclared_constant_is_kept_and_undeclared_link_dropped() -> None:
    prompt = image_chain(1)
    prompt["1"]["inputs"] |= {"more": 5, "other": ["0", 0], "broken": ["nowhere", 7]}
    inputs = accepted(prompt).nodes["1"].inputs
    assert inputs == {"image": Link("0", 0), "more": Constant(5)}


@pytest.mark.parametrize("link", [[4, 0], ["404", 0], [None, 0], [["4"], 0], [{}, 0]])
def test_link_to_a_node_that_is_not_there_names_input_and_node(link: list[Any]) -> None:
    (error,) = errors_of(text_to_image(model=link), "3")
    assert error["type"] == "exception_during_inner_validation"
    assert error["extra_info"]["exception_type"] == "KeyError"
    assert error["details"].startswith("model")
    assert error["extra_info"]["linked_node"] == ["3", 0]


@pytest.mark.parametrize("slot", [3, -1, 10**30, "0", None, 0.5, math.nan, math.inf, True, [0]])
def test_link_to_a_slot_that_is_not_there_is_an_error(slot: Any) -> None:
    (error,) = errors_of(text_to_image(model=["4", slot]), "3")
    assert error["type"] == "exception_during_inner_validation"
    assert error["extra_info"]["exception_type"] in ("IndexError", "TypeError")


def test_slot_may_be_a_whole_float() -> None:
    assert accepted(text_to_image(model=["4", 0.0])).nodes["3"].inputs["model"] == Link("4", 0)


def test_output_whose_own_link_is_broken_is_an_exception_of_the_output() -> None:
    prompt = text_to_image()
    prompt["9"]["inputs"]["images"] = ["88", 0]
    (error,) = errors_of(prompt, "9")
    assert error["type"] == "exception_during_validation"
    assert set(error["extra_info"]) == {"exception_type", "traceback"}
    assert "/" not in "".join(error["extra_info"]["traceback"])


@pytest.mark.parametrize("inputs", [None, [], "text", 5])
def test_inputs_that_are_no_object_are_an_error_of_the_node(inputs: Any) -> None:
    prompt = text_to_image()
    prompt["5"]["inputs"] = inputs
    (error,) = errors_of(prompt, "5")
    assert error["extra_info"]["exception_type"] == "TypeError"
    assert "must be an object" in error["details"]


def test_broken_node_feeding_two_is_reported_once() -> None:
    prompt = text_to_image()
    del prompt["4"]["inputs"]
    outcome = check(prompt)
    assert list(outcome.node_errors) == ["4"]
    assert len(outcome.node_errors["4"]["errors"]) == 1


def test_link_of_another_type_is_refused_before_its_source_is_looked_at() -> None:
    prompt = text_to_image(model=["4", 2])
    outcome = check(prompt)
    assert [error["type"] for error in outcome.node_errors["3"]["errors"]] == ["return_type_mismatch"]
    assert outcome.node_errors["3"]["errors"][0]["extra_info"]["received_type"] == "VAE"


def test_linked_combo_takes_the_output_of_a_class_that_declares_the_same_choices() -> None:
    def with_output(*choices: str) -> Validation:
        chooser = replace(node_class("Chooser"), outputs=(OutputSpec(choices),))
        prompt = text_to_image(sampler_name=["w", 0]) | {"w": node("Chooser")}
        return validate(prompt, with_builtin(chooser), FakeCatalog())

    assert not with_output(*SAMPLER_NAMES).node_errors
    problem = with_output("euler").node_errors["3"]["errors"][0]
    assert (problem["type"], problem["extra_info"]["received_type"]) == ("return_type_mismatch", "COMBO")


def test_linked_combo_of_files_takes_the_same_files() -> None:
    names = FakeCatalog().names("checkpoints")
    chooser = replace(node_class("Chooser"), outputs=(OutputSpec(tuple(names)),))
    prompt = text_to_image() | {"w": node("Chooser")}
    prompt["4"]["inputs"]["ckpt_name"] = ["w", 0]
    assert not validate(prompt, with_builtin(chooser), FakeCatalog()).node_errors


def test_linked_combo_takes_no_plain_text_output() -> None:
    words = node_class("Words", outputs="STRING")
    prompt = text_to_image(sampler_name=["w", 0]) | {"w": node("Words")}
    outcome = validate(prompt, with_builtin(words), FakeCatalog())
    assert outcome.node_errors["3"]["errors"][0]["type"] == "return_type_mismatch"


def test_unused_broken_nodes_do_not_matter_but_unknown_classes_do() -> None:
    prompt = text_to_image() | {"x": node("ImageInvert"), "y": {"class_type": "ImageInvert"}}
    assert check(prompt).node_errors == {}
    outcome = check(prompt | {"z": node("NoSuchClass") | {"_meta": {"title": "My node"}}})
    assert outcome.error is not None
    assert outcome.error["extra_info"] == {
        "node_id": "z",
        "class_type": "NoSuchClass",
        "node_title": "My node",
    }


@pytest.mark.parametrize(
    "broken",
    [
        None,
        5,
        "x",
        [],
        {},
        {"class_type": None},
        {"class_type": ["KSampler"]},
        {"class_type": {}},
        {"inputs": {}},
    ],
)
def test_node_without_a_class_is_named(broken: Any) -> None:
    error = check(text_to_image() | {"bad": broken}).error
    assert error is not None
    assert error["type"] == "missing_node_type"
    assert error["extra_info"]["node_id"] == "bad"
    assert error["extra_info"]["class_type"] is None


@pytest.mark.parametrize("prompt", [None, 5, "text", True, [1], [{"class_type": "SaveImage"}]])
def test_prompt_that_is_no_object_is_invalid(prompt: Any) -> None:
    error = check(prompt).error
    assert error is not None
    assert error["type"] == "invalid_prompt"


def test_node_id_that_is_no_text_is_refused() -> None:
    error = check({9: node("Boxes")}).error
    assert error is not None
    assert error["type"] == "invalid_prompt"
    assert "9" in error["details"]


@pytest.mark.parametrize(
    ("targets", "run"), [(None, ("9", "p")), (["p"], ("p",)), (["9", "p", "none"], ("9", "p"))]
)
def test_targets_choose_among_the_outputs(targets: list[str] | None, run: tuple[str, ...]) -> None:
    prompt = text_to_image() | {"p": node("PreviewImage", images=["8", 0])}
    assert accepted(prompt, targets).targets == run


@pytest.mark.parametrize("targets", [[], ["3"], ["none"]])
def test_targets_that_are_no_outputs_leave_nothing_to_run(targets: list[str]) -> None:
    error = check(text_to_image(), targets).error
    assert error is not None
    assert error["type"] == "prompt_no_outputs"


def test_valid_output_runs_although_another_is_invalid() -> None:
    prompt = text_to_image() | {"p": node("PreviewImage", images=["gone", 0])}
    outcome = check(prompt)
    assert outcome.plan is not None
    assert outcome.plan.targets == ("9",)
    assert outcome.error is None
    assert outcome.node_errors["p"]["dependent_outputs"] == ["p"]


def test_failing_outputs_are_named_at_all_problems_found_so_far() -> None:
    prompt = {
        "a": node("SaveImage", images=["b", 0], filename_prefix="x"),
        "b": node("ImageInvert"),
        "c": node("SaveImage", images=["d", 0], filename_prefix="x"),
        "d": node("ImageInvert"),
    }
    errors = check(prompt).node_errors
    assert errors["b"]["dependent_outputs"] == ["a", "c"]
    assert errors["d"]["dependent_outputs"] == ["c"]


def test_prompt_error_sums_up_the_problems() -> None:
    error = check(text_to_image(steps=0)).error
    assert error is not None
    assert error["details"].startswith("KSampler #3: ")
    assert "steps" in error["details"]


def test_cycle_names_its_nodes_only() -> None:
    prompt = {
        "out": node("SaveImage", images=["a", 0], filename_prefix="x"),
        "a": node("ImageInvert", image=["b", 0]),
        "b": node("ImageInvert", image=["c", 0]),
        "c": node("ImageInvert", image=["b", 0]),
    }
    outcome = check(prompt)
    assert outcome.plan is None
    assert list(outcome.node_errors) == ["b", "c"]
    (error,) = outcome.node_errors["c"]["errors"]
    assert error["type"] == "dependency_cycle"
    assert error["extra_info"] == {"node_id": "c", "cycle_nodes": ["b", "c"]}


def test_node_that_feeds_itself_is_a_cycle() -> None:
    prompt = image_chain(1)
    prompt["1"]["inputs"]["image"] = ["1", 0]
    (error,) = errors_of(prompt, "1")
    assert error["extra_info"]["cycle_nodes"] == ["1"]


def test_uploaded_image_is_accepted_at_once_and_a_missing_one_refused() -> None:
    prompt = {"1": node("LoadImage", image="a.png"), "2": node("PreviewImage", images=["1", 0])}
    catalog = FakeCatalog()
    outcome = check(prompt, catalog=catalog)
    assert outcome.node_errors["1"]["errors"][0]["details"] == "image - Invalid image file: a.png"
    catalog.uploads["a.png"] = None  # type: ignore[assignment]
    assert check(prompt, catalog=catalog).plan is not None


@pytest.mark.parametrize("image", [5, None, {"a": 1}, "\ud800"])
def test_image_name_of_any_kind_is_refused_politely(image: Any) -> None:
    prompt = {"1": node("LoadImage", image=image), "2": node("PreviewImage", images=["1", 0])}
    outcome = check(prompt)
    kinds = [error["type"] for error in outcome.node_errors["1"]["errors"]]
    assert kinds == ["value_not_in_list" if image is None else "custom_validation_failed"]


def test_node_check_that_raises_fails_only_its_node() -> None:
    def explode(catalog: FileCatalog, values: Mapping[str, Any]) -> Mapping[str, str]:
        raise RuntimeError("pack bug")

    bad = node_class("Bad", check_inputs=explode, output_node=True)
    outcome = validate(
        {"bad": node("Bad"), **image_chain(1)}, with_builtin(*RECORDED_CLASSES, bad), FakeCatalog()
    )
    assert outcome.plan is not None
    (error,) = outcome.node_errors["bad"]["errors"]
    assert error["extra_info"]["exception_type"] == "RuntimeError"


def test_node_check_takes_over_bounds_and_choices_of_inputs_it_names() -> None:
    seen: list[Mapping[str, Any]] = []

    def check_inputs(catalog: FileCatalog, values: Mapping[str, Any]) -> Mapping[str, str]:
        seen.append(values)
        return {}

    own = node_class(
        "Own",
        whole("free", 0, 0, 9),
        whole("bound", 0, 0, 9),
        combo("choice", ("a",)),
        socket("image", "IMAGE"),
        output_node=True,
        check_inputs=check_inputs,
        checked_inputs=frozenset({"free", "choice"}),
    )
    prompt = image_chain(0) | {"o": node("Own", free="99", bound=99, choice="z", image=["0", 0], extra=1)}
    outcome = validate(prompt, with_builtin(*RECORDED_CLASSES, own), FakeCatalog())
    assert [error["extra_info"]["input_name"] for error in outcome.node_errors["o"]["errors"]] == ["bound"]
    assert seen == [{"free": 99, "bound": 99, "choice": "z", "image": None}]


def test_folder_is_listed_once_per_prompt() -> None:
    catalog = FakeCatalog()
    loader = node("CheckpointLoaderSimple", ckpt_name="sd15_tiny.safetensors")
    many = {str(i): node("CLIPTextEncode", text="x", clip=[f"l{i}", 1]) for i in range(50)} | {
        f"l{i}": loader for i in range(50)
    }
    tail = {f"o{i}": node("Show", c=[str(i), 0]) for i in range(50)}
    show = node_class("Show", socket("c", "CONDITIONING"), output_node=True)
    assert validate(many | tail, with_builtin(show), catalog).node_errors == {}
    assert catalog.listings == 1


def test_chain_of_ten_thousand_nodes_takes_ten_times_as_long_as_one_of_a_thousand() -> None:
    assert is_linear(image_chain, accepted, 10_000)
    assert len(accepted(image_chain(10_000)).nodes) == 10_002


def image_cycle(size: int) -> Prompt:
    prompt = image_chain(size)
    prompt["1"]["inputs"]["image"] = [str(size), 0]
    return prompt


def test_cycle_of_ten_thousand_nodes_is_found_quickly_and_told_briefly() -> None:
    assert is_linear(image_cycle, check, 10_000)
    outcome = check(image_cycle(10_000))
    assert 1 <= len(outcome.node_errors) <= 100
    assert all(
        len(error["extra_info"]["cycle_nodes"]) <= 100
        for entry in outcome.node_errors.values()
        for error in entry["errors"]
    )


def test_answer_to_thousands_of_failing_outputs_stays_small() -> None:
    def failing(size: int) -> Prompt:
        return {str(i): node("SaveImage") for i in range(size)}

    assert is_linear(failing, check, 3000)
    outcome = check(failing(3000))
    assert len(outcome.node_errors) == 3000
    assert all(entry["dependent_outputs"] for entry in outcome.node_errors.values())
    assert len(json.dumps(outcome.node_errors)) < 3_000_000


def test_deeply_nested_values_are_refused_not_fatal() -> None:
    deep: Any = 1
    for _ in range(50_000):
        deep = [deep]
    outcome = check({"1": node("Boxes", words={"a": deep}, curve=deep, count=[deep, 0])})
    assert outcome.plan is None
    deep_object: Any = 1
    for _ in range(50_000):
        deep_object = {"a": deep_object}
    assert check({"1": node("Boxes", curve=deep_object)}).plan is not None
    assert check({"1": node("Boxes", modern=deep_object)}).plan is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
_LINK = st.tuples(st.sampled_from(["0", "1", "2", "3", "9"]) | _JSON, st.integers(-1, 4) | _JSON).map(list)
_INPUT_NAMES = sorted(
    {
        spec.name
        for name in CLASSES.names()
        if (declaration := CLASSES.get(name)) is not None
        for spec in declaration.inputs
    }
)
_NODE = st.fixed_dictionaries(
    {"class_type": st.sampled_from(CLASSES.names())},
    optional={
        "inputs": st.dictionaries(
            st.sampled_from(_INPUT_NAMES), _LINK | _JSON | st.fixed_dictionaries({"__value__": _JSON})
        )
        | _JSON,
        "_meta": _JSON,
        "is_changed": _JSON,
    },
)
_GRAPH = st.dictionaries(st.sampled_from(["0", "1", "2", "3", "9"]), _NODE, max_size=5)


def assert_is_an_answer(prompt: Any) -> None:
    before = copy.deepcopy(prompt)
    outcome = check(prompt)
    assert (outcome.plan is None) != (outcome.error is None)
    json.dumps([outcome.error, outcome.node_errors], allow_nan=False)
    if outcome.plan is not None:
        for value in (v for n in outcome.plan.nodes.values() for v in n.inputs.values()):
            assert isinstance(value, Link | Constant)
    assert repr(prompt) == repr(before)  # by text: NaN is not equal to itself


@settings(max_examples=150, deadline=None)
@given(_JSON)
def test_any_json_gets_an_answer(prompt: Any) -> None:
    assert_is_an_answer(prompt)


@settings(max_examples=300, deadline=None)
@given(_GRAPH)
def test_any_graph_of_known_classes_gets_an_answer(prompt: Any) -> None:
    assert_is_an_answer(prompt)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_literal_in_a_valid_graph_gets_an_answer(data: st.DataObject) -> None:
    prompt = text_to_image()
    node_id = data.draw(st.sampled_from(sorted(prompt)))
    name = data.draw(st.sampled_from(sorted(prompt[node_id]["inputs"])))
    prompt[node_id]["inputs"][name] = data.draw(_JSON | _LINK)
    assert_is_an_answer(prompt)


def test_workflow_of_the_page_is_told_from_a_prompt() -> None:
    found = check({"version": 0.4, "nodes": [{"id": 1, "type": "KSampler"}], "links": []})
    assert found.error is not None
    assert found.error["type"] == "invalid_prompt"
    assert "as the page saves it" in found.error["message"]
    assert "comfyserverless run" in found.error["details"]
