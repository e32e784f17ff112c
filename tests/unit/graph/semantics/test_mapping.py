"""Which calls a node gets, and what becomes of their results."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.graph.declaration import OutputSpec
from comfyserverless.graph.lowering import Blocked, Items, NodeResult
from comfyserverless.graph.semantics.mapping import (
    EmptyListError,
    blocker_in,
    calls_of,
    edge_of,
    values_of,
)
from comfyserverless.graph.semantics.merging import merge, merge_ui
from tests.support.execution import node_of

NODE = node_of("Node", lambda: None)
WHOLE = node_of("Whole", lambda: None, input_is_list=True)
HIDDEN = node_of("Hidden", lambda: None, hidden={"id": "UNIQUE_ID"})
ONE, LIST = OutputSpec("*"), OutputSpec("*", is_list=True)

_values = st.lists(st.one_of(st.integers(), st.just(Blocked())), max_size=4)
_inputs = st.dictionaries(st.sampled_from("abcd"), _values, max_size=4)


@given(_inputs)
def test_there_are_as_many_calls_as_the_longest_input_has_values(inputs: dict[str, list[Any]]) -> None:
    longest = max((len(values) for values in inputs.values()), default=0)
    if longest and not all(inputs.values()):
        with pytest.raises(EmptyListError):
            calls_of(inputs, NODE)
        return
    calls = calls_of(inputs, NODE)
    if not longest:
        assert calls == [{}]
        return
    assert len(calls) == longest
    for name, values in inputs.items():
        assert [call[name] for call in calls] == values + [values[-1]] * (longest - len(values))


@given(_inputs)
def test_node_that_takes_lists_gets_all_of_them_in_one_call(inputs: dict[str, list[Any]]) -> None:
    assert calls_of(inputs, WHOLE) == [inputs]


def test_hidden_inputs_count_as_one_value_each() -> None:
    assert calls_of({}, HIDDEN) == [{}]
    with pytest.raises(EmptyListError, match="'a'"):
        calls_of({"a": []}, HIDDEN)


def test_first_blocked_argument_holds_up_a_call_also_inside_a_list() -> None:
    assert blocker_in({"a": 1, "b": Blocked("x"), "c": Blocked("y")}, NODE) == Blocked("x")
    assert blocker_in({"a": [1, Blocked("z")]}, WHOLE) == Blocked("z")
    assert blocker_in({"a": [1, Blocked("z")]}, NODE) is None, "a list as a value is the node's own affair"
    assert blocker_in({}, NODE) is None


@given(st.lists(st.integers(), max_size=4))
def test_edge_holds_what_was_put_on_it(values: list[int]) -> None:
    assert list(values_of(edge_of(values))) == values
    assert type(edge_of(values)) is (int if len(values) == 1 else Items)


@given(st.lists(st.lists(st.integers(), max_size=3), min_size=1, max_size=4))
def test_list_slots_are_joined_and_others_collected(lists: list[list[int]]) -> None:
    results = [NodeResult((Items(tuple(each)), each)) for each in lists]
    merged = merge(results, [LIST, ONE]).outputs
    assert list(values_of(merged[0])) == [item for each in lists for item in each]
    assert list(values_of(merged[1])) == lists, "a list on a plain slot is one value"


def test_skipped_call_leaves_a_blocked_value_in_every_slot() -> None:
    merged = merge([Blocked(), NodeResult((Items((1, 2)), 3))], [LIST, ONE]).outputs
    assert merged == (Items((Blocked(), 1, 2)), Items((Blocked(), 3)))
    assert merge([Blocked()], [LIST, ONE]).outputs == (Blocked(), Blocked())


def test_first_call_says_how_many_slots_there_are() -> None:
    assert merge([NodeResult((1,)), NodeResult((2, 3))], [ONE, ONE]).outputs == (Items((1, 2)),)
    assert merge([NodeResult((1, 2, 3))], [ONE]).outputs == (1, 2, 3)


def test_ui_has_the_keys_of_the_first_call_that_shows_something() -> None:
    results = [NodeResult(), NodeResult((), {"a": [1]}), Blocked(), NodeResult((), {"a": [2], "b": [3]})]
    assert merge_ui(results) == {"a": [1, 2]}
    assert merge_ui([NodeResult((), {})]) is None
