"""Classes with a schema, as the node host calls them."""

from __future__ import annotations

import asyncio

from comfyserverless.host.api.contract import CONTRACT
from comfyserverless.host.blocking import ExecutionBlocker
from comfyserverless.host.contract import ClassEntry, HiddenValues, contract_of
from tests.unit.host.api.nodes import Plain, Rich, output_of
from tests.unit.host.api.schemas import io

ENTRY = ClassEntry("Registered", Rich, "custom_nodes.mine", "Shown")
HIDDEN = HiddenValues({"UNIQUE_ID": "7", "PROMPT": {"1": {}}}, {"unique_id": "UNIQUE_ID", "prompt": "PROMPT"})


def test_it_is_the_contract_of_classes_with_a_schema_only() -> None:
    assert contract_of(Plain) is CONTRACT
    assert contract_of(type("V1", (), {})) is not CONTRACT


def test_class_is_described_under_its_registered_name() -> None:
    info = CONTRACT.describe(ENTRY, {"mode": "on"})
    assert (info.name, info.info["name"]) == ("Registered", "Registered")
    assert "mode.strength" in [each.name for each in info.inputs]


def test_validator_hears_of_types_only_if_it_names_them() -> None:
    assert CONTRACT.check(ENTRY, {"seed": 0, "mode": "on"}, {"x": "INT"}) == "{'mode': 'on'} {'x': 'INT'}"


def test_token_and_call_see_hidden_values() -> None:
    entry = ClassEntry("Plain", Plain, "custom_nodes.mine", "Plain")
    call = CONTRACT.function(entry, CONTRACT.new_instance(entry), "execute", HIDDEN)
    returned = call(**CONTRACT.arguments(entry, "execute", {"a": 1}, HIDDEN))
    assert CONTRACT.outcome(entry, returned) == {"result": (1, "?7"), "ui": None, "expand": None}
    assert CONTRACT.change_token(ENTRY, {"seed": 3}, HIDDEN) == {"seed": 3, "images": {}}


def test_async_call_is_awaited_by_the_host() -> None:
    call = CONTRACT.function(ENTRY, None, "execute", HIDDEN)
    returned = asyncio.run(call(seed=1, mode="off"))
    assert CONTRACT.outcome(ENTRY, returned)["ui"] == {"text": ["t"]}


def test_names_of_a_lazy_check_pass_as_they_are() -> None:
    call = CONTRACT.function(ENTRY, None, "check_lazy_status", HIDDEN)
    names = call(**{"seed": 1, "mode": "on", "mode.strength": None})
    assert CONTRACT.outcome(ENTRY, names) == ["mode.strength"]


def test_blocked_outcome_is_a_blocker() -> None:
    outcome = CONTRACT.outcome(ENTRY, output_of(io.NodeOutput(block_execution="no")))
    assert isinstance(outcome["result"], ExecutionBlocker)
