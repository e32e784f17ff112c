"""Order the nodes of a plan as ComfyUI runs them.

Among ready nodes: first an output node, then one that feeds an output node, then one two steps before,
then any; ties in the order in which nodes were found walking back from the targets. The three classes do
not change while a plan runs, so a heap gives the next node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import heappop, heappush

from comfyserverless.core.errors import InvariantError
from comfyserverless.core.ids import NodeId
from comfyserverless.graph.plan import Link, Plan, PlanNode

_OTHER_RANK = 3


class Frontier:
    """Hand out the nodes of a plan that must run, each once, when all it needs is complete.

    done: nodes whose result is at hand (cached). They are not waited for and pull in nothing that is before
    them; only a target among them is handed out, so that its result is shown again in its turn. Use: `next()`
    until it gives None, run what it gave (one by one or side by side), `complete()` each, and `next()` again.
    """

    def __init__(self, plan: Plan, done: Collection[NodeId] = ()) -> None:
        #: Every needed node -> what it waits for (ids, each once, not done ones only).
        self._sources: dict[NodeId, list[NodeId]] = _find_needed(plan, frozenset(done))
        #: Every needed node -> the needed nodes that wait for it.
        self._consumers: dict[NodeId, list[NodeId]] = {node: [] for node in self._sources}
        #: Every node that was not handed out -> how many of its sources are not complete.
        self._missing = {node: len(sources) for node, sources in self._sources.items()}
        for node, sources in self._sources.items():
            for source in sources:
                self._consumers[source].append(node)
        self._position = {node: index for index, node in enumerate(self._sources)}
        self._ranks = self._rank(plan)
        #: All and only ready nodes that were not handed out: (rank, position, id).
        self._ready: list[tuple[int, int, NodeId]] = []
        #: Nodes that were handed out and are not complete.
        self._running: set[NodeId] = set()
        for node, count in self._missing.items():
            if count == 0:
                self._make_ready(node)

    def needed(self) -> tuple[NodeId, ...]:
        """Return all nodes that will be handed out (cached targets too), in the order they were found."""
        return tuple(self._sources)

    def next(self) -> NodeId | None:
        """Hand out the node to run next; None while nothing is ready (or all was handed out)."""
        if not self._ready:
            return None
        node = heappop(self._ready)[2]
        self._running.add(node)
        del self._missing[node]
        return node

    def complete(self, node: NodeId) -> None:
        """Note that a node has its result, which may make others ready.

        Raises InvariantError if the node was not handed out, or is complete already.
        """
        if node not in self._running:
            raise InvariantError(f"node {node} is complete but was not running")
        self._running.remove(node)
        for consumer in self._consumers[node]:
            self._missing[consumer] -= 1
            if self._missing[consumer] == 0:
                self._make_ready(consumer)

    def is_finished(self) -> bool:
        """Tell whether every needed node is complete."""
        return not self._missing and not self._running

    def validate(self) -> None:
        """Assert the membership laws of the collections."""
        ready = {node for _, _, node in self._ready}
        assert ready == {node for node, count in self._missing.items() if count == 0}
        assert not self._running & set(self._missing)

    def _make_ready(self, node: NodeId) -> None:
        heappush(self._ready, (self._ranks[node], self._position[node], node))

    def _rank(self, plan: Plan) -> dict[NodeId, int]:
        """Return each node's distance to the nearest output node before it, at most 3."""
        ranks = dict.fromkeys(self._sources, _OTHER_RANK)
        edge = [node for node in self._sources if plan.nodes[node].declaration.output_node]
        for rank in range(_OTHER_RANK):
            for node in edge:
                ranks[node] = min(ranks[node], rank)
            edge = [source for node in edge for source in self._sources[node]]
            edge = list(dict.fromkeys(edge))
        return ranks


def _find_needed(plan: Plan, done: frozenset[NodeId]) -> dict[NodeId, list[NodeId]]:
    """Walk back from the targets, the most recently found branch first, as ComfyUI does."""
    found: dict[NodeId, list[NodeId]] = {}
    for target in plan.targets:
        stack = [target]
        while stack:
            node = stack.pop()
            if node in found:
                continue
            linked = () if node in done else _linked(plan.nodes[node])
            sources = [source for source in linked if source not in done]
            found[node] = list(dict.fromkeys(sources))
            stack.extend(sources)
    return found


def _linked(node: PlanNode) -> Iterator[NodeId]:
    for value in node.inputs.values():
        if isinstance(value, Link):
            yield value.source
