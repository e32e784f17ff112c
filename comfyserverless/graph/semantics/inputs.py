"""Say what becomes of each input of a node: a literal, a link to follow now or only if asked, a link as
such."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from comfyserverless.core.errors import PromptError
from comfyserverless.core.ids import NodeId
from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import InputSpec
from comfyserverless.graph.lowering import NodeResult
from comfyserverless.graph.plan import Link, PlanNode
from comfyserverless.graph.semantics.mapping import values_of


class NodeInputError(PromptError):
    """An input cannot be given to a node: its link leads nowhere, or it asks for one that is no link."""


def is_lazy(spec: InputSpec | None) -> bool:
    """Tell whether a link to an input is followed only if the node asks for it."""
    return spec is not None and bool(spec.options.get("lazy"))


def is_raw(spec: InputSpec | None) -> bool:
    """Tell whether a node gets the links of an input as they are."""
    return spec is not None and bool(spec.options.get("rawLink"))


def specs_of(node: PlanNode) -> dict[str, InputSpec]:
    """Return the declared inputs of a node by name."""
    return {spec.name: spec for spec in node.declaration.inputs}


def followed(node: PlanNode) -> Iterator[NodeId]:
    """Yield the sources that a node waits for before it can start, with repeats."""
    specs = specs_of(node)
    takes_all = node.declaration.takes_undeclared_links
    for name, value in node.inputs.items():
        spec = specs.get(name)
        if isinstance(value, Link) and not is_lazy(spec) and (spec is not None or takes_all):
            yield value.source


def followable(node: PlanNode) -> Iterator[NodeId]:
    """Yield all sources that a node may come to wait for, with repeats."""
    return (value.source for value in node.inputs.values() if isinstance(value, Link))


def read_slot(result: NodeResult, slot: int) -> tuple[Value, ...] | None:
    """Return the values of an output slot, None if the node has not given it."""
    return values_of(result.outputs[slot]) if 0 <= slot < len(result.outputs) else None


def newly_needed(asked: Iterable[Any], node: PlanNode, there: Collection[str]) -> list[str]:
    """Return which inputs have to be followed of those that a lazy check names, each once.

    there: the inputs that have values; they are ignored, as are names that are no texts. Raises NodeInputError
    for a name that is not given, or given as a literal.
    """
    hidden = node.declaration.hidden
    names = [name for name in asked if isinstance(name, str) and name not in there and name not in hidden]
    for name in names:
        if not isinstance(node.inputs.get(name), Link):
            how = "is not linked" if name in node.inputs else "was not given"
            raise NodeInputError(f"Node {node.id} asks for its input {name!r}, which {how}")
    return list(dict.fromkeys(names))


def linked_sources(node: PlanNode, names: Sequence[str]) -> list[NodeId]:
    """Return the sources of linked inputs, each once."""
    found = (node.inputs[name] for name in names)
    return list(dict.fromkeys(value.source for value in found if isinstance(value, Link)))
