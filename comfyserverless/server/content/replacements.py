"""Let prompts with node classes that were renamed run: replace unknown classes by what packs name instead.

A pack says so in `node_replacements.json`, in the shape of the route: old class -> list of replacements, of
which the first one counts. Only classes that this server does not know are ever replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Replacements = dict[str, list[dict[str, Any]]]


def read_replacements(sources: Iterable[Mapping[str, Any]]) -> Replacements:
    """Merge what packs say; entries that are not of the known shape are left out."""
    merged: Replacements = {}
    for source in sources:
        for old, entries in source.items():
            listed = entries if isinstance(entries, list) else []
            good = [_completed(old, entry) for entry in listed if _is_good(entry)]
            if good:
                merged.setdefault(old, []).extend(good)
    return merged


def _is_good(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("new_node_id"), str):
        return False
    inputs, outputs = entry.get("input_mapping") or [], entry.get("output_mapping") or []
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        return False
    has_inputs = all(isinstance(each, dict) and isinstance(each.get("new_id"), str) for each in inputs)
    return has_inputs and all(
        isinstance(each, dict) and {type(each.get("new_idx")), type(each.get("old_idx"))} == {int}
        for each in outputs
    )


def _completed(old: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "new_node_id": entry["new_node_id"],
        "old_node_id": old,
        "old_widget_ids": entry.get("old_widget_ids") or [],
        "input_mapping": entry.get("input_mapping") or [],
        "output_mapping": entry.get("output_mapping") or [],
    }


def replaced(prompt: Any, replacements: Replacements, is_known: Callable[[str], bool]) -> Any:
    """Return the prompt with every unknown class replaced that has a known replacement.

    What is not a graph, or has nothing to replace, is returned as it is; the argument is never changed.
    """
    if not isinstance(prompt, dict) or not replacements:
        return prompt
    chosen: dict[str, Mapping[str, Any]] = {}
    for node_id, node in prompt.items():
        found = replacements.get(class_of(node))
        if found and not is_known(class_of(node)) and is_known(found[0]["new_node_id"]):
            chosen[node_id] = found[0]
    if not chosen:
        return prompt
    graph = {
        node_id: _renamed(node, chosen[node_id]) if node_id in chosen else node
        for node_id, node in prompt.items()
    }
    slots = {
        (node_id, each["old_idx"]): each["new_idx"]
        for node_id, entry in chosen.items()
        for each in entry["output_mapping"]
    }
    return {node_id: _relinked(node, slots) for node_id, node in graph.items()}


def class_of(node: Any) -> str:
    """Return the class that a node of a prompt names, empty if it names none."""
    value = node.get("class_type") if isinstance(node, dict) else None
    return value if isinstance(value, str) else ""


def _renamed(node: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Give a node its new class; without a mapping the inputs keep their names."""
    given = node.get("inputs")
    old = given if isinstance(given, dict) else {}
    inputs = dict(old) if not entry["input_mapping"] else {}
    for each in entry["input_mapping"]:
        if "set_value" in each:
            inputs[each["new_id"]] = each["set_value"]
        elif each.get("old_id") in old:
            inputs[each["new_id"]] = old[each["old_id"]]
    return {**node, "class_type": entry["new_node_id"], "inputs": inputs}


def _relinked(node: Any, slots: Mapping[tuple[Any, Any], int]) -> Any:
    """Let links to outputs that moved follow them."""
    inputs = node.get("inputs") if isinstance(node, dict) else None
    if not isinstance(inputs, dict):
        return node
    moved = {
        name: [link[0], slots[link[0], link[1]]]
        for name, link in inputs.items()
        if isinstance(link, list) and len(link) == 2 and _is_slot(link) and (link[0], link[1]) in slots
    }
    return {**node, "inputs": {**inputs, **moved}} if moved else node


def _is_slot(link: list[Any]) -> bool:
    return isinstance(link[0], str) and isinstance(link[1], int | float)
