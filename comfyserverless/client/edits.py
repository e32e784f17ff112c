"""Change inputs of a prompt as `--set NODE.INPUT=VALUE` says, and say what can be changed when it cannot."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from comfyserverless.core.errors import ConfigError
from comfyserverless.graph.workflows.conversion import Instance, ObjectInfo, encode
from comfyserverless.graph.workflows.slots import all_entries
from comfyserverless.graph.workflows.widgets import DYNAMIC_COMBO, Widget, branches, widget_of

Prompt = dict[str, Any]

_MAX_SHOWN = 40
_TRUTH = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


@dataclass(frozen=True, slots=True)
class Edit:
    """A change that names a node of the prompt; value: as given, so far a text.

    is_uploaded: it is the name of a file that was just sent, which no list of choices has yet.
    """

    node_id: str
    input_name: str
    value: str
    is_uploaded: bool = False


def read_edits(text: str, prompt: Prompt, instances: Mapping[str, Instance] | None = None) -> list[Edit]:
    """Read one `NODE.INPUT=VALUE`; NODE is an id, a title or a class that one node has.

    instances: subgraphs, whose widgets stand for inputs of (sometimes several) nodes. Raises ConfigError naming
    the nodes there are.
    """
    instances = instances or {}
    place, equals, value = text.partition("=")
    if not equals or "." not in place:
        raise ConfigError(f"--set {text}: not of the form NODE.INPUT=VALUE")
    names = _names(prompt, instances)
    for node, name in _splits(place.strip()):
        found = names.get(node, [])
        if len(found) > 1:
            raise ConfigError(
                f"--set {text}: {node!r} names {len(found)} nodes; take an id: {', '.join(found)}"
            )
        if found and found[0] in instances:
            return _inner_edits(text, instances[found[0]], name, value)
        if found:
            return [Edit(found[0], name, value)]
    shown = [f"{node_id} ({_title(node)})" for node_id, node in prompt.items()]
    shown += [f"{node_id} ({each.title})" for node_id, each in instances.items()]
    raise ConfigError(f"--set {text}: there is no such node; nodes: {_listed(shown)}")


def apply_edit(edit: Edit, prompt: Prompt, object_info: ObjectInfo) -> None:
    """Put the value into the prompt, with the type that the class declares. Raises ConfigError if it is bad."""
    node = prompt[edit.node_id]
    node["inputs"][edit.input_name] = encode(_value(edit, node, object_info.get(node["class_type"])))


def _inner_edits(text: str, instance: Instance, name: str, value: str) -> list[Edit]:
    if name not in instance.inputs:
        known = _listed(list(instance.inputs))
        raise ConfigError(f"--set {text}: the subgraph {instance.title!r} has no such input; inputs: {known}")
    return [Edit(node_id, inner, value) for node_id, inner in instance.inputs[name]]


def _splits(place: str) -> Iterator[tuple[str, str]]:
    """Yield the ways to read NODE.INPUT: both may hold dots."""
    for index, char in enumerate(place):
        if char == "." and 0 < index < len(place) - 1:
            yield place[:index], place[index + 1 :]


def _names(prompt: Prompt, instances: Mapping[str, Instance]) -> dict[str, list[str]]:
    """Return name -> node ids; an id counts before a title, a title before a class."""
    titles: dict[str, list[str]] = {}
    classes: dict[str, list[str]] = {}
    for node_id, node in prompt.items():
        titles.setdefault(_title(node), []).append(node_id)
        classes.setdefault(str(node["class_type"]), []).append(node_id)
    for node_id, instance in instances.items():
        titles.setdefault(instance.title, []).append(node_id)
    return classes | titles | {node_id: [node_id] for node_id in (*prompt, *instances)}


def _title(node: Mapping[str, Any]) -> str:
    meta = node.get("_meta")
    title = meta.get("title") if isinstance(meta, dict) else None
    return title if isinstance(title, str) and title else str(node["class_type"])


def _value(edit: Edit, node: Mapping[str, Any], info: Mapping[str, Any] | None) -> Any:
    if edit.is_uploaded:
        return edit.value
    if info is None:  # the server says itself that it does not know the class
        return _json_or_text(edit.value)
    inputs = node["inputs"]
    declared = {name: entry for name, entry, _ in all_entries(info, inputs, inputs)}
    where = f"--set {edit.node_id}.{edit.input_name}={edit.value}"
    if edit.input_name not in declared:
        if edit.input_name in inputs:
            return _json_or_text(edit.value)
        known = _listed(list(declared))
        raise ConfigError(f"{where}: {node['class_type']} has no such input; inputs: {known}")
    entry = declared[edit.input_name]
    widget = widget_of(edit.input_name, entry)
    if widget is None:
        raise ConfigError(f"{where}: the input takes {entry[0]} from another node, not a value")
    try:
        return _converted(widget, edit.value)
    except ValueError as exc:
        raise ConfigError(f"{where}: {exc}") from None


def _converted(widget: Widget, text: str) -> Any:
    """Turn a text into a value of a widget. Raises ValueError saying what is allowed."""
    match widget.kind:
        case "INT":
            return _number(widget, text, int)
        case "FLOAT":
            return _number(widget, text, float)
        case "BOOLEAN":
            if text.lower() not in _TRUTH:
                raise ValueError("not true or false")
            return _TRUTH[text.lower()]
        case "STRING" | "TEXTAREA" | "MARKDOWN" | "COLOR":
            return text
    if widget.kind == DYNAMIC_COMBO:
        return _choice(list(branches(widget)), text)
    return _json_or_text(text) if widget.choices is None else _choice(widget.choices, text)


def _number(widget: Widget, text: str, kind: type[int] | type[float]) -> int | float:
    try:
        value = kind(text)
    except ValueError:
        raise ValueError(f"not {'a whole number' if kind is int else 'a number'}") from None
    if not math.isfinite(value):
        raise ValueError("not a finite number")
    low, high = widget.options.get("min"), widget.options.get("max")
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(f"not between {low} and {high}")
    return value


def _choice(choices: list[Any], text: str) -> Any:
    for choice in choices:
        if str(choice) == text:
            return choice
    texts = [str(choice) for choice in choices]
    near = texts if len(texts) <= _MAX_SHOWN else get_close_matches(text, texts, 8) or texts
    raise ValueError(f"not one of {_listed(near)}")


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return (", ".join(names[:_MAX_SHOWN]) or "none") + more
