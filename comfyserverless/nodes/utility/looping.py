"""Find the body of a loop in a graph, and write it out once for each iteration. Pure.

A loop is a Start Loop, an End Loop that comes after it, and the nodes that depend on the one and that the other
needs: its body. Loops nest if the inner start depends on the outer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from comfyserverless.core.errors import PromptError
from comfyserverless.graph.walk import is_slot

START, END, ITERATION = "StartLoop", "EndLoop", "LoopIteration"
MAX_NODES = 20_000
"""How many nodes a loop may come to, all iterations together."""

Graph = Mapping[str, Mapping[str, Any]]
"""Nodes in API form by id."""


@dataclass(frozen=True)
class Loop:
    """One loop of a graph. body: ids of its nodes, without start and end."""

    start: str
    end: str
    body: tuple[str, ...]


def find_loop(graph: Graph, end: str) -> Loop:
    """Return the loop that an End Loop closes. Raises PromptError if its Start Loop is not clear."""
    before = _ancestors(graph, end)
    open_starts = _open_starts(graph, end, before)
    if not open_starts:
        raise PromptError("End Loop has no Start Loop: nothing that is connected to it depends on one")
    inner = _innermost(graph, open_starts)
    if inner is None:
        names = ", ".join(sorted(open_starts))
        raise PromptError(
            f"End Loop depends on several Start Loops ({names}); connect iteration_index of the outer one to"
            " parent_iteration of the inner one"
        )
    after = _descendants(graph, inner, before)
    return Loop(inner, end, tuple(node for node in before if node in after))


def users_outside(graph: Graph, start: str) -> set[str]:
    """Return the nodes that use a Start Loop and are in no loop: nothing after an End Loop counts."""
    within: set[str] = set()
    for end in (node for node in graph if _class_of(graph, node) == END):
        with suppress(PromptError):
            loop = find_loop(graph, end)
            within |= {loop.start, *loop.body, end}
    before_ends = [node for node in graph if _class_of(graph, node) != END]
    return set(_descendants(graph, start, before_ends)) - within


def _open_starts(graph: Graph, end: str, before: Iterable[str]) -> set[str]:
    """Return the starts among the ancestors of an end that no other end among them closes."""
    starts = {node for node in before if _class_of(graph, node) == START}
    ends = {
        node: set(_ancestors(graph, node)) for node in before if _class_of(graph, node) == END and node != end
    }
    for ancestors in sorted(ends.values(), key=len):  # an end has more ancestors than those inside its loop
        closed = _innermost(graph, starts & ancestors)
        starts -= {closed} if closed is not None else set()
    return starts


def _innermost(graph: Graph, starts: set[str]) -> str | None:
    """Return the start that depends on all the others, None if there is none."""
    return next((start for start in starts if starts <= {start, *_ancestors(graph, start)}), None)


@dataclass
class Iterations:
    """What a loop is written out to. nodes: in API form; values, others: what each iteration gives."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    values: list[Any] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)


def write_out(graph: Graph, loop: Loop, prefix: str, starts: Sequence[Mapping[str, Any]]) -> Iterations:
    """Write the body of a loop out, once for each of `starts`: the inputs of what stands for the Start Loop.

    prefix: how the ids of all new nodes begin. The value that an iteration hands on goes into
    `current_iteration_value` of the next. Raises PromptError if the nodes are too many.
    """
    count = len(starts) * (len(loop.body) + 2)
    if count > MAX_NODES:
        raise PromptError(f"The loop comes to {count} nodes; {MAX_NODES} are possible")
    made = Iterations()
    end_inputs = graph[loop.end].get("inputs", {})
    handed: dict[str, Any] = {}
    for index, given in enumerate(starts):
        names = {node: f"{prefix}{index}.{node}" for node in (loop.start, *loop.body)}
        inputs = {**given, **handed} if index else given
        made.nodes[names[loop.start]] = {
            "class_type": ITERATION,
            "inputs": {name: value for name, value in inputs.items() if value is not None},
            "override_display_id": loop.start,
        }
        for node in loop.body:
            made.nodes[names[node]] = _renamed(graph[node], names) | {"override_display_id": node}
        if "next_iteration_value" in end_inputs:
            handed = {"current_iteration_value": _redirected(end_inputs["next_iteration_value"], names)}
        if "output_value" in end_inputs:
            made.values.append(_redirected(end_inputs["output_value"], names))
        made.others += [
            _redirected(value, names) for name, value in end_inputs.items() if name.startswith("terminations.")
        ]
    made.others += handed.values()
    return made


def _renamed(node: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    inputs = {name: _redirected(value, names) for name, value in node.get("inputs", {}).items()}
    return {**node, "inputs": inputs}


def _redirected(value: Any, names: Mapping[str, str]) -> Any:
    return [names[value[0]], value[1]] if is_link(value) and value[0] in names else value


def is_link(value: Any) -> bool:
    """Tell whether an input of a node in API form is a link."""
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and is_slot(value[1])


def _class_of(graph: Graph, node: str) -> Any:
    return graph[node].get("class_type")


def _sources(graph: Graph, node: str) -> Iterator[str]:
    inputs = graph[node].get("inputs")
    for value in inputs.values() if isinstance(inputs, Mapping) else ():
        if is_link(value) and value[0] in graph:
            yield value[0]


def _ancestors(graph: Graph, node: str) -> dict[str, None]:
    """Return all nodes that a node depends on, in the order they are found, without itself.

    What is before a `LoopIteration` is outside of the iteration, and left out.
    """

    def following(each: str) -> Iterable[str]:
        return () if _class_of(graph, each) == ITERATION else _sources(graph, each)

    return _reached(_sources(graph, node), following)


def _descendants(graph: Graph, node: str, among: Iterable[str]) -> dict[str, None]:
    """Return the nodes among some that depend on a node, without itself."""
    consumers: dict[str, list[str]] = {}
    for each in among:
        for source in _sources(graph, each):
            consumers.setdefault(source, []).append(each)
    return _reached(consumers.get(node, ()), lambda each: consumers.get(each, ()))


def _reached(first: Iterable[str], following: Callable[[str], Iterable[str]]) -> dict[str, None]:
    found: dict[str, None] = {}
    waiting = list(first)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found[node] = None
            waiting += following(node)
    return found
