"""Tell the node host about the prompt of a call: the graph, the workflow, and the nodes that expansions added.

They are large, and the same for all calls of a run. A call says only which of them it needs; the host asks for
what it has not got yet, so that a run costs in proportion to its nodes. A call may run again after its run has
ended: what it is about stays known for as long as somebody keeps its hidden inputs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any
from weakref import WeakValueDictionary

from comfyserverless.core.errors import PromptError
from comfyserverless.core.ids import InvocationId
from comfyserverless.core.values import Output, Value, replace_outputs
from comfyserverless.graph.lowering import HiddenInputs, Lineage

GRAPH_TAGS = frozenset({"PROMPT", "DYNPROMPT"})


def needed_parts(hidden: HiddenInputs, tags: Iterable[str]) -> dict[str, Any]:
    """Return which parts of its prompt a call needs for these hidden inputs, and of how many added nodes."""
    wanted = set(tags)
    parts: dict[str, Any] = {}
    if wanted & GRAPH_TAGS:
        parts["graph"] = True
    if "EXTRA_PNGINFO" in wanted:
        parts["workflow"] = True
    if "DYNPROMPT" in wanted:
        parts["nodes"] = len(hidden.lineage.nodes)
    return parts


class PromptParts:
    """Know what calls are about, as long as their hidden inputs are kept by whoever may run them again."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[InvocationId, HiddenInputs] = WeakValueDictionary()

    def note(self, invocation: InvocationId, hidden: HiddenInputs) -> None:
        """Take note of what a call is about."""
        self._known[invocation] = hidden

    def find(
        self, invocation: InvocationId, wanted: Mapping[str, Any], peek: Callable[[Output], Value]
    ) -> dict[str, Any]:
        """Return the parts that are wanted; see `core.hosting`. peek: gives a result if it is there now.

        Raises PromptError for a call that nobody knows any more.
        """
        hidden = self._known.get(invocation)
        if hidden is None:
            raise PromptError(f"the prompt of {invocation} is not known any more")
        found: dict[str, Any] = {}
        if wanted.get("graph"):
            found["graph"] = json.dumps(dict(hidden.prompt))
        if wanted.get("workflow"):
            found["workflow"] = json.dumps(hidden.extra_pnginfo)
        if (known := wanted.get("nodes")) is not None:
            found["nodes"] = _added(hidden.lineage, int(known), peek)
        return found


def _added(lineage: Lineage, known: int, peek: Callable[[Output], Value]) -> list[list[Any]]:
    """Return the nodes that were added after those that are known: id, node, parent, display, real."""
    return [
        [
            str(key),
            replace_outputs(dict(node), peek),
            lineage.parents[key],
            lineage.displays[key],
            lineage.reals[key],
        ]
        for key, node in islice(lineage.nodes.items(), known, None)
    ]
