"""Attaching ControlNets, and which applications a sampler sees."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.core.ids import InvocationId
from comfyserverless.core.values import ControlNetRef, FileRef, Output
from comfyserverless.nodes.controlnet import MAX_APPLICATIONS, distinct_applications, spread_to_negative
from tests.support.graph_fakes import FakeContext
from tests.support.graph_lowered import lower, output
from tests.unit.nodes.test_conditioning import cond

CANNY = ControlNetRef(FileRef("/models/controlnet/canny.safetensors"))
DEPTH = ControlNetRef(FileRef("/models/controlnet/depth.safetensors"))
HINT = Output(InvocationId("load"), "images")


def application(control_net: ControlNetRef = CANNY, strength: float = 1.0) -> dict[str, Any]:
    return {
        "control_net": control_net,
        "hint": HINT,
        "strength": strength,
        "start_percent": 0.0,
        "end_percent": 1.0,
    }


async def attach(positive: Any, negative: Any, **more: Any) -> tuple[Any, Any]:
    """Apply a ControlNet to a pair of conditionings."""
    inputs = application() | {"image": HINT} | more
    del inputs["hint"]
    result = await lower(
        "ControlNetApplyAdvanced", FakeContext(), positive=positive, negative=negative, **inputs
    )
    return result.outputs[0], result.outputs[1]


async def test_application_is_appended_to_both_sides_after_earlier_ones() -> None:
    pair = await attach(cond("p", pooled_output=None), cond("n"))
    positive, negative = await attach(
        *pair, control_net=DEPTH, strength=0.5, start_percent=0.1, end_percent=0.9
    )
    second = {
        "control_net": DEPTH,
        "hint": HINT,
        "strength": 0.5,
        "start_percent": 0.1,
        "end_percent": 0.9,
    }
    for side in (positive, negative):
        assert side[0][1]["control"] == [application(), second]
    assert positive[0][1]["pooled_output"] is None
    assert distinct_applications(positive, negative) == [application(), second]


@pytest.mark.parametrize(
    ("name", "types"), [("openpose", (0,)), ("repaint", (7,)), ("auto", ()), ("no such type", ())]
)
async def test_type_of_a_union_is_a_part_of_its_handle(name: str, types: tuple[int, ...]) -> None:
    other = ControlNetRef(CANNY.file, (3,))
    for net in (CANNY, other):
        typed = await output("SetUnionControlNetType", control_net=net, type=name)
        assert typed == ControlNetRef(CANNY.file, types)


async def test_applications_of_other_types_are_different_ones() -> None:
    tile = ControlNetRef(CANNY.file, (6,))
    pair = await attach(cond("p"), cond("n"))
    positive, negative = await attach(*pair, control_net=tile)
    assert distinct_applications(positive, negative) == [application(), application(tile)]


async def test_strength_zero_changes_nothing() -> None:
    positive, negative = cond("p"), cond("n")
    assert await attach(positive, negative, strength=0.0) == (positive, negative)
    old = await output("ControlNetApply", conditioning=positive, control_net=CANNY, image=HINT, strength=0.0)
    assert old == positive


async def test_inputs_are_not_changed_in_place() -> None:
    positive, negative = cond("p"), cond("n")
    await attach(positive, negative)
    assert positive[0][1] == negative[0][1] == {}


@pytest.mark.parametrize(("name", "kind"), [("image", "IMAGE"), ("control_net", "CONTROL_NET")])
async def test_value_of_another_kind_is_refused(name: str, kind: str) -> None:
    with pytest.raises(PromptError, match=f"'{name}' takes a {kind}"):
        await attach(cond("p"), cond("n"), **{name: "x"})


async def test_old_node_controls_a_negative_without_control_too() -> None:
    positive = await output(
        "ControlNetApply", conditioning=cond("p"), control_net=CANNY, image=HINT, strength=0.7
    )
    assert positive[0][1]["control"] == [application(strength=0.7)]
    negative = spread_to_negative(positive, cond("n", pooled_output=None))
    assert negative == cond("n", pooled_output=None, control=[application(strength=0.7)])


async def test_new_node_on_the_positive_leaves_the_negative_alone() -> None:
    positive, _ = await attach(cond("p"), cond("unused"))
    assert spread_to_negative(positive, cond("n")) == cond("n")


def old(name: str, *applications: dict[str, Any], **more: Any) -> list[list[Any]]:
    return cond(name, control=list(applications), control_apply_to_uncond=True, **more)


def test_negative_with_a_control_of_its_own_keeps_it() -> None:
    negative = cond("n", control=[application(DEPTH)]) + cond("m")
    assert spread_to_negative(old("p", application()), negative) == negative


def test_controls_are_dealt_to_negatives_in_turn() -> None:
    one, two, three = (application(strength=strength) for strength in (0.1, 0.2, 0.3))
    positive = old("a", one) + old("b", two) + old("c", three)
    negative = spread_to_negative(positive, cond("n") + cond("m"))
    assert [options["control"] for _, options in negative] == [[three], [two]]


def test_entries_with_an_area_neither_give_nor_take() -> None:
    assert spread_to_negative(old("p", application(), area=1), cond("n")) == cond("n")
    assert spread_to_negative(old("p", application()), cond("n", area=1)) == cond("n", area=1)


def test_equal_applications_are_listed_once_in_first_seen_order() -> None:
    one, two = application(), application(DEPTH)
    positive = cond("a", control=[two]) + cond("b", control=[one, two])
    negative = cond("n", control=[application()]) + cond("m")
    assert distinct_applications(positive, negative) == [two, one]


async def test_chain_of_controlnets_has_an_end() -> None:
    pair = (cond("p"), cond("n"))
    for _ in range(MAX_APPLICATIONS):
        pair = await attach(*pair)
    assert len(pair[0][0][1]["control"]) == MAX_APPLICATIONS
    with pytest.raises(PromptError, match=f"More than {MAX_APPLICATIONS} ControlNets"):
        await attach(*pair)


def test_sampler_takes_no_more_different_controlnets_than_one_conditioning() -> None:
    entries = [
        entry
        for index in range(MAX_APPLICATIONS + 1)
        for entry in cond("p", control=[application(strength=index / 100)])
    ]
    assert len(distinct_applications(entries[1:], [])) == MAX_APPLICATIONS
    with pytest.raises(PromptError, match=f"More than {MAX_APPLICATIONS} ControlNets"):
        distinct_applications(entries, [])
