"""Check one literal of a prompt against its declared input."""

from __future__ import annotations

from typing import Any

from comfyserverless.graph import problems
from comfyserverless.graph.choices import Choices
from comfyserverless.graph.coercion import CoercionError, coerce, unwrap
from comfyserverless.graph.declaration import InputSpec
from comfyserverless.graph.problems import Problem


def check_literal(
    spec: InputSpec, given: Any, choices: Choices, *, is_checked_by_node: bool
) -> tuple[Any, Problem | None]:
    """Unwrap, convert and check a literal; return it (as far as it got) and what is wrong with it.

    is_checked_by_node: the node's own check names this input, so bounds and combo choices are left to it.
    """
    value = unwrap(given)
    try:
        value = coerce(spec.type, value)
    except CoercionError as exc:
        return value, problems.invalid_input_type(spec.name, choices.config(spec), value, str(exc))
    if (
        is_checked_by_node and value is not None
    ):  # null means "linked" to the node's check, so it is checked here
        return value, None
    return value, _check_bounds(spec, value, choices) or _check_choice(spec, value, choices)


def _check_bounds(spec: InputSpec, value: Any, choices: Choices) -> Problem | None:
    low, high = spec.options.get("min"), spec.options.get("max")
    if low is None and high is None:
        return None
    if not isinstance(value, int | float):
        return problems.invalid_input_type(spec.name, choices.config(spec), value, "the value has no order")
    if low is not None and value < low:
        return problems.out_of_bounds(spec.name, choices.config(spec), value, low, is_below=True)
    if high is not None and value > high:
        return problems.out_of_bounds(spec.name, choices.config(spec), value, high, is_below=False)
    return None


def _check_choice(spec: InputSpec, value: Any, choices: Choices) -> Problem | None:
    takes_many = bool(spec.options.get("multiselect") or spec.options.get("multi_select"))
    members = value if takes_many and isinstance(value, list) else [value]
    refused = [member for member in members if not choices.offers(spec, member)]
    if not refused:
        return None
    shown = refused if members is value else value
    return problems.value_not_in_list(spec.name, choices.config(spec), shown, choices.of(spec) or ())
