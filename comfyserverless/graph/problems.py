"""Build the errors of a prompt in ComfyUI's shape: {type, message, details, extra_info}.

Clients key on `type`; the page shows `details` and marks the slot named by `extra_info.input_name`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from comfyserverless.graph.jsonsafe import brief, json_safe

Problem = dict[str, Any]

#: A combo with more choices than this is not repeated in an error.
MAX_SHOWN_CHOICES = 20
_MAX_SUMMARY_LINES = 20
_MAX_SHOWN_CLASSES = 60
_MAX_LIKE_CLASSES = 8


class NodeAborted(Exception):
    """Validation of a node cannot go on; ComfyUI reports such cases by exception type."""

    def __init__(self, exception_type: str, message: str, where: str) -> None:
        super().__init__(message)
        self.exception_type = exception_type
        self.where = where


def problem(kind: str, message: str, details: str = "", extra: Mapping[str, Any] | None = None) -> Problem:
    """Build one error."""
    return {"type": kind, "message": message, "details": details, "extra_info": dict(extra or {})}


def saved_workflow() -> Problem:
    """Report a workflow as the page saves it, where a prompt is needed."""
    message = "This is a workflow as the page saves it (`nodes`, `links`), not a prompt (nodes by id)"
    details = "`comfyserverless run FILE --server URL` converts and runs it; so does the page"
    return problem("invalid_prompt", message, details)


def missing_node_type(node_id: str, class_type: Any, title: str, known: Sequence[str]) -> Problem:
    """Report a node without a class, or of a class that is not among the known ones."""
    shown = class_type if isinstance(class_type, str) else None
    message = "A node has no class_type" if shown is None else f"Node class {brief(shown)} does not exist here"
    if len(known) <= _MAX_SHOWN_CLASSES:
        message += f"; classes: {', '.join(known)}"
    elif shown is not None and (like := get_close_matches(_cut(shown), known, _MAX_LIKE_CLASSES)):
        message += f"; classes of like names: {', '.join(like)}"
    extra = {"node_id": node_id, "class_type": shown, "node_title": title or shown}
    return problem("missing_node_type", message, f"Node ID '#{_cut(node_id)}'", extra)


def required_input_missing(name: str) -> Problem:
    """Report a required input that was not submitted."""
    return problem("required_input_missing", "A required input is not given", name, {"input_name": name})


def bad_linked_input(name: str, config: list[Any], value: Any) -> Problem:
    """Report a list that is not a pair of node id and output slot."""
    message = "A link must be a list of two: node id and output slot"
    return problem("bad_linked_input", message, name, _received(name, config, value))


def return_type_mismatch(
    name: str, config: list[Any], source: str | tuple[Any, ...], link: list[Any]
) -> Problem:
    """Report a link between types that do not fit."""
    received = source if isinstance(source, str) else "COMBO"
    wanted = config[0] if isinstance(config[0], str) else "COMBO"
    details = f"{name}: gets {received}, takes {wanted}"
    extra = {"input_name": name, "input_config": config, "received_type": received, "linked_node": list(link)}
    return problem("return_type_mismatch", "The linked output has another type than the input", details, extra)


def invalid_input_type(name: str, config: list[Any], value: Any, reason: str) -> Problem:
    """Report a literal that cannot be converted to the declared type."""
    extra = _received(name, config, value) | {"exception_message": reason}
    return problem(
        "invalid_input_type", f"The value is no {config[0]}", f"{name}, {brief(value)}, {reason}", extra
    )


def out_of_bounds(name: str, config: list[Any], value: Any, bound: Any, *, is_below: bool) -> Problem:
    """Report a number outside its declared bounds."""
    kind = "value_smaller_than_min" if is_below else "value_bigger_than_max"
    side = "the smallest allowed value" if is_below else "the largest allowed value"
    details = f"{name}: {brief(value)}, {side} is {bound}"
    return problem(kind, f"The value is beyond {side}", details, _received(name, config, value))


def value_not_in_list(name: str, config: list[Any], value: Any, choices: Sequence[Any]) -> Problem:
    """Report a value that a combo does not offer."""
    is_short = len(choices) <= MAX_SHOWN_CHOICES
    offered = str(list(choices)) if is_short else f"(list of length {len(choices)})"
    extra = _received(name, config if is_short else None, value)
    return problem(
        "value_not_in_list", "The value is not offered", f"{name}: {brief(value)} not in {offered}", extra
    )


def custom_validation_failed(name: str, text: str) -> Problem:
    """Report what a node's own check said of an input."""
    details = f"{name} - {text}" if text else name
    return problem("custom_validation_failed", "The node refused an input", details, {"input_name": name})


def invalid_dynamic_input(text: str) -> Problem:
    """Report submitted names that do not fit inputs which depend on what is submitted."""
    extra = {"input_name": ""}
    return problem("invalid_dynamic_input", "The names of inputs do not fit", text, extra)


def dependency_cycle(node_id: str, cycle: Sequence[str]) -> Problem:
    """Report a node that waits for itself."""
    extra = {"node_id": node_id, "cycle_nodes": list(cycle)}
    return problem("dependency_cycle", "The node depends on itself", " -> ".join([*cycle, cycle[0]]), extra)


def aborted_output(error: NodeAborted) -> Problem:
    """Report an output node whose validation could not be finished."""
    extra = {"exception_type": error.exception_type, "traceback": [error.where]}
    return problem("exception_during_validation", "The node could not be validated", str(error), extra)


def aborted_source(name: str, config: list[Any], link: list[Any], error: NodeAborted) -> Problem:
    """Report a source node whose validation could not be finished, seen from the input `name` it feeds."""
    extra = {
        "input_name": name,
        "input_config": config,
        "exception_message": str(error),
        "exception_type": error.exception_type,
        "traceback": [error.where],
        "linked_node": list(link),
    }
    message = "A node before this one could not be validated"
    return problem("exception_during_inner_validation", message, str(error), extra)


def summary(node_errors: Mapping[str, Any]) -> str:
    """Return one line per error, for clients that show only the prompt's error."""
    lines = [
        f"{entry['class_type']} #{node_id}: {error['message']}: {error['details']}"
        for node_id, entry in node_errors.items()
        for error in entry["errors"]
    ]
    if len(lines) > _MAX_SUMMARY_LINES:
        lines[_MAX_SUMMARY_LINES:] = [f"and {len(lines) - _MAX_SUMMARY_LINES} more"]
    return "\n".join(lines)


def _received(name: str, config: list[Any] | None, value: Any) -> dict[str, Any]:
    return {"input_name": name, "input_config": config, "received_value": json_safe(value)}


def _cut(text: str, max_chars: int = 200) -> str:
    return text if len(text) <= max_chars else f"{text[:max_chars]}..."
