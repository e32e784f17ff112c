"""Give a node the inputs that it has in the page: those of its class in order, filled with what was saved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from comfyserverless.graph.workflows.document import Node, Slot
from comfyserverless.graph.workflows.widgets import (
    DYNAMIC_COMBO,
    autogrown,
    branch_entries,
    entries_of,
    is_growing,
    widget_of,
)


def slots_of(node: Node, info: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[Slot, ...]:
    """Return the inputs of a node of a known class in the page's order.

    Plain sockets come first, then those that dynamic combos add, widgets, and sockets that only the file has;
    inputs of widgets that the class does not have are gone.
    values: its widget values by name, which say what the branches of dynamic combos add.
    """
    saved = {slot.name: slot for slot in node.inputs}
    groups: tuple[list[Slot], list[Slot], list[Slot]] = ([], [], [])
    for name, entry, is_branch in all_entries(info, values, saved):
        is_widget = widget_of(name, entry) is not None
        slot = saved.get(name) or Slot(name, _type_name(entry), None, name if is_widget else None)
        groups[2 if is_widget else int(is_branch)].append(slot)
    ordered = [slot for group in groups for slot in group]
    known = {slot.name for slot in ordered}
    return (*ordered, *(slot for slot in node.inputs if slot.name not in known and slot.widget is None))


def all_entries(
    info: Mapping[str, Any], values: Mapping[str, Any], saved: Iterable[str]
) -> Iterator[tuple[str, Any, bool]]:
    """Yield (name, [type, options], is in a branch) of all inputs that a node has in the page.

    saved: names of the inputs in the file, which say how far groups have grown.
    """
    yield from _walk(entries_of(info), values, tuple(saved), False)


def _walk(
    entries: Iterator[tuple[str, Any]], values: Mapping[str, Any], saved: tuple[str, ...], is_branch: bool
) -> Iterator[tuple[str, Any, bool]]:
    for name, entry in entries:
        if is_growing(entry):
            grown = dict(autogrown(name, entry))
            member = next(iter(grown.values()), None)
            more = [each for each in saved if each.startswith(f"{name}.") and each not in grown]
            for each in (*grown, *sorted(more, key=_by_number)):
                yield each, member, is_branch
            continue
        yield name, entry, is_branch
        widget = widget_of(name, entry)
        if widget is not None and widget.kind == DYNAMIC_COMBO:
            yield from _walk(branch_entries(widget, values.get(name)), values, saved, True)


def _by_number(name: str) -> tuple[int, int, str]:
    """Sort names of a growing group by their number, texts like letters by length and alphabet."""
    digits = name[len(name.rstrip("0123456789")) :]
    return (int(digits) if digits else 0, len(name), name)


def _type_name(entry: Any) -> str:
    kind = entry[0] if isinstance(entry, list | tuple) and entry else "*"
    return kind if isinstance(kind, str) else "COMBO"
