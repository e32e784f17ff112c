"""Calling classes with a schema."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from comfyserverless.host.api.calling import outcome_v3, prepare_v3
from comfyserverless.host.api.ui.results import SavedImages, SavedResult
from comfyserverless.host.blocking import ExecutionBlocker
from tests.unit.host.api.nodes import Lists, Plain, Rich, output_of
from tests.unit.host.api.schemas import io


def test_hidden_values_reach_the_node() -> None:
    call = prepare_v3(Plain, {"unique_id": "7"})
    assert call(a=1, b="x").args == (1, "x7")
    assert call(a=2).args == (2, "?7")


def test_dotted_names_arrive_nested_and_a_coroutine_stays_one() -> None:
    call = prepare_v3(Rich)
    assert inspect.iscoroutinefunction(call)
    values = {"seed": 1, "images.image0": "A", "images.image2": "C", "mode": "on", "mode.strength": 0.5}
    nested = {"seed": 1, "images": {"image0": "A", "image2": "C"}, "mode": {"mode": "on", "strength": 0.5}}
    assert asyncio.run(call(**values)).args == (nested,)


def test_lists_arrive_nested_too() -> None:
    call = prepare_v3(Lists)
    assert call(**{"mode": ["on"], "mode.strength": [0.5, 1.0]}).args == (
        {"mode": ["on"], "strength": [0.5, 1.0]},
    )


def test_lazy_check_gets_names_with_the_values_of_containers() -> None:
    call = prepare_v3(Rich, None, "check_lazy_status")
    assert call(**{"seed": 1, "mode": "on", "mode.strength": None}) == ["mode.strength"]
    assert call(**{"seed": 1, "mode": "on", "mode.strength": 0.5}) == []


def test_validator_gets_what_it_names() -> None:
    call = prepare_v3(Rich, None, "validate_inputs")
    values = {"seed": 0, "images.image0": None, "mode": "on", "mode.strength": 1.0}
    assert call(**values, input_types={"images.image0": "IMAGE"}) == (
        "{'mode': 'on', 'strength': 1.0} {'images.image0': 'IMAGE'}"
    )
    assert call(**{**values, "seed": 1}) is True


def test_fingerprint_gets_everything_nested() -> None:
    call = prepare_v3(Rich, None, "fingerprint_inputs")
    assert call(**{"seed": 1, "images.image0": None}) == {"seed": 1, "images": {"image0": None}}


def test_outcome_is_the_form_of_the_first_contract() -> None:
    saved = SavedImages([SavedResult("a.png", "", io.FolderType.temp)], is_animated=True)
    outcome = outcome_v3(output_of(io.NodeOutput(1, ui=saved)))
    files = [{"filename": "a.png", "subfolder": "", "type": "temp"}]
    assert outcome == {"result": (1,), "ui": {"images": files, "animated": [True]}, "expand": None}


@pytest.mark.parametrize(("block", "message"), [("stop", "stop"), (True, None), ("", "")])
def test_blocked_outcome_is_a_blocker(block: object, message: str | None) -> None:
    result = outcome_v3(output_of(io.NodeOutput(1, block_execution=block)))["result"]
    assert isinstance(result, ExecutionBlocker)
    assert result.message == message


def test_ui_that_is_none_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="ui is a list"):
        outcome_v3(output_of(io.NodeOutput(ui=[1])))
