"""The invocations of a simulated prompt."""

from __future__ import annotations

from comfyserverless.core.modelfn import BUILTIN_FUNCTIONS
from comfyserverless.sim.prompts import PromptShape


def test_calls_are_those_of_built_in_functions_in_their_lanes() -> None:
    for call in PromptShape(2, 3).calls():
        assert BUILTIN_FUNCTIONS[call.function].lane == call.lane


def test_calls_need_only_what_comes_before_and_all_lead_to_the_file() -> None:
    calls = list(PromptShape(1, 4).calls())
    seen: set[str] = set()
    for call in calls:
        assert seen.issuperset(call.needs)
        seen.add(call.name)
    needed = {need for call in calls for need in call.needs}
    assert seen - needed == {"save"}


def test_more_pictures_cost_more_and_more_steps_too() -> None:
    one = PromptShape(1, 8).service_s()
    assert one < PromptShape(1, 16).service_s() < PromptShape(8, 16).service_s()
    assert PromptShape(8, 1).service_s("cpu") > PromptShape(1, 1).service_s("cpu")
