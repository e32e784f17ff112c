"""Put the results of a node's calls together into one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import OutputSpec
from comfyserverless.graph.lowering import Blocked, NodeResult
from comfyserverless.graph.semantics.mapping import edge_of, values_of

CallResult = NodeResult | Blocked
"""What came of a call: its result, or the silent Blocked of one that did not run."""


def merge(results: Sequence[CallResult], outputs: Sequence[OutputSpec]) -> NodeResult:
    """Return the result of a node from those of its calls, in order; there is at least one.

    A slot that is declared as a list holds the items of all calls, any other one value of each call. There are
    as many slots as the first call gave (all, if it did not run).
    """
    first = results[0]
    count = len(outputs) if isinstance(first, Blocked) else len(first.outputs)
    lists = [slot < len(outputs) and outputs[slot].is_list for slot in range(count)]
    merged = tuple(edge_of(list(_slot(results, slot, is_list=lists[slot]))) for slot in range(count))
    return NodeResult(merged, merge_ui(results))


def merge_ui(results: Iterable[CallResult]) -> Mapping[str, list[Any]] | None:
    """Return the ui dict of a node: the keys of the first one, the values of all; None if there is none."""
    shown = [each.ui for each in results if isinstance(each, NodeResult) and each.ui]
    if not shown:
        return None
    return {key: [item for ui in shown for item in ui.get(key, ())] for key in shown[0]}


def _slot(results: Sequence[CallResult], slot: int, *, is_list: bool) -> Iterable[Value]:
    for result in results:
        if isinstance(result, Blocked):
            yield result
        elif slot < len(result.outputs):
            value = result.outputs[slot]
            yield from value if is_list and type(value) is list else values_of(value)
