"""Order the nodes of a plan as ComfyUI runs them, also of a plan that grows while it runs.

Among ready nodes: first an output node or one whose code is a coroutine, then one that feeds an output node,
then one two steps before, then any; ties in the order in which nodes were found walking back from the targets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Protocol

from comfyserverless.core.errors import InvariantError
from comfyserverless.core.ids import NodeId
from comfyserverless.graph.plan import PlanNode
from comfyserverless.graph.semantics.inputs import followed

_OTHER_RANK = 3


class Graph(Protocol):
    """What is run: a plan, or one that grows. targets: the output nodes to start from."""

    @property
    def nodes(self) -> Mapping[NodeId, PlanNode]:
        """Return the nodes by id."""

    @property
    def targets(self) -> Sequence[NodeId]:
        """Return the output nodes to run."""


class Frontier:
    """Hand out the nodes of a plan that must run when all they need is complete.

    done: nodes whose result is at hand (cached). They are not waited for and pull in nothing that is before
    them; only a target among them is handed out, so that its result is shown again in its turn. Use: `next()`
    until it gives None, run what it gave (one by one or side by side), `complete()` each, and `next()` again. A
    node that cannot go on without others is given back with `wait_for()`, one that goes on by itself meanwhile
    is `set_aside()` and `bring_back()`; both are handed out again.
    """

    def __init__(self, plan: Graph, done: Collection[NodeId] = ()) -> None:
        self._nodes = plan.nodes
        self._done = set(done)
        #: Every needed node -> its place in the order in which they were found.
        self._position: dict[NodeId, int] = {}
        #: Every needed node -> the needed nodes it waits or waited for, and those that wait or waited for it.
        self._sources: dict[NodeId, list[NodeId]] = {}
        self._consumers: dict[NodeId, list[NodeId]] = {}
        #: Every node that is neither handed out nor complete -> how many of its sources are not complete.
        self._missing: dict[NodeId, int] = {}
        #: Every needed node -> its distance to the nearest output node that needs it, at most 3.
        self._distance: dict[NodeId, int] = {}
        #: All and only nodes of _missing that miss nothing; the heap may hold more: (rank, position, id).
        self._ready: set[NodeId] = set()
        self._heap: list[tuple[int, int, NodeId]] = []
        #: Nodes that were handed out: run now, set aside, complete.
        self._running: set[NodeId] = set()
        self._aside: set[NodeId] = set()
        self._complete: set[NodeId] = set()
        self.add(plan.targets)

    def needed(self) -> tuple[NodeId, ...]:
        """Return all nodes that were found so far (cached targets too), in that order."""
        return tuple(self._position)

    def next(self) -> NodeId | None:
        """Hand out the node to run next; None while nothing is ready (or all was handed out)."""
        while self._heap:
            node = heappop(self._heap)[2]
            if node in self._ready:
                self._ready.remove(node)
                self._running.add(node)
                del self._missing[node]
                return node
        return None

    def complete(self, node: NodeId) -> None:
        """Note that a node has its result, which may make others ready.

        Raises InvariantError if the node was not handed out, or is complete already.
        """
        self._leave(node, self._running, "complete")
        self._complete.add(node)
        for consumer in self._consumers[node]:
            if consumer in self._missing:
                self._missing[consumer] -= 1
                if self._missing[consumer] == 0:
                    self._make_ready(consumer)

    def wait_for(self, node: NodeId, sources: Iterable[NodeId]) -> list[NodeId]:
        """Let a node that was handed out wait for others; returns the nodes that are needed newly for that.

        It is handed out again when they are complete, at once if they are.
        """
        self._leave(node, self._running, "given back")
        wanted = [each for each in dict.fromkeys(sources) if each in self._nodes and each not in self._done]
        new = self.add(wanted)
        self._missing[node] = 0
        self._link(node, [source for source in wanted if source not in self._complete])
        return new

    def set_aside(self, node: NodeId) -> None:
        """Note that a node that was handed out goes on by itself; nothing waits for its turn."""
        self._leave(node, self._running, "set aside")
        self._aside.add(node)

    def bring_back(self, node: NodeId) -> None:
        """Let a node that was set aside be handed out again."""
        self._leave(node, self._aside, "brought back")
        self._missing[node] = 0
        self._make_ready(node)

    def note_done(self, nodes: Iterable[NodeId]) -> None:
        """Note that new nodes of the plan have their results already; call it before they are needed."""
        self._done.update(nodes)

    def add(self, targets: Iterable[NodeId]) -> list[NodeId]:
        """Run more nodes, with all that they need; returns what is needed newly, in the order it was found."""
        new: list[NodeId] = []
        for target in targets:
            stack = [target]
            while stack:
                node = stack.pop()
                if node in self._position:
                    continue
                self._position[node] = len(self._position)
                self._sources[node], self._consumers[node], self._missing[node] = [], [], 0
                self._distance[node] = 0 if self._nodes[node].declaration.output_node else _OTHER_RANK
                new.append(node)
                stack.extend(self._sources_of(node))
        for node in new:
            self._link(node, dict.fromkeys(self._sources_of(node)))
        return new

    def is_complete(self, node: NodeId) -> bool:
        """Tell whether a node has its result, or had it from the beginning."""
        return node in self._complete or (node in self._done and node not in self._missing)

    def is_finished(self) -> bool:
        """Tell whether every needed node is complete."""
        return not self._missing and not self._running and not self._aside

    def stuck(self) -> list[NodeId]:
        """Return the nodes that wait for each other, in the order they were found; none if one can go on."""
        if self._ready or self._running or self._aside:
            return []
        waiting = dict.fromkeys(node for node in self._position if node in self._missing)
        waited_for = {node: sum(consumer in waiting for consumer in self._consumers[node]) for node in waiting}
        ends = [node for node, count in waited_for.items() if count == 0]
        while ends:  # what nobody waits for is behind a circle, not in it
            node = ends.pop()
            del waiting[node]
            for source in self._sources[node]:
                if source in waiting:
                    waited_for[source] -= 1
                    if waited_for[source] == 0:
                        ends.append(source)
        return list(waiting)

    def validate(self) -> None:
        """Assert the membership laws of the collections."""
        assert self._ready == {node for node, count in self._missing.items() if count == 0}
        states = [set(self._missing), self._running, self._aside, self._complete]
        assert sum(map(len, states)) == len(set().union(*states)) == len(self._position)

    def _sources_of(self, node: NodeId) -> Iterator[NodeId]:
        if node not in self._done:
            for source in followed(self._nodes[node]):
                if source in self._nodes and source not in self._done:
                    yield source

    def _link(self, node: NodeId, sources: Iterable[NodeId]) -> None:
        """Let a node wait for sources; it is ready if none of them is incomplete."""
        for source in sources:
            self._sources[node].append(source)
            self._consumers[source].append(node)
            self._missing[node] += source not in self._complete
        self._pull_closer(node)
        if self._missing[node] == 0:
            self._make_ready(node)

    def _pull_closer(self, node: NodeId) -> None:
        """Correct the distances of what is before a node."""
        stack = [node]
        while stack:
            node = stack.pop()
            distance = self._distance[node] + 1
            for source in self._sources[node]:
                if distance < self._distance[source]:
                    self._distance[source] = distance
                    stack.append(source)
                    if source in self._ready:
                        self._make_ready(source)

    def _make_ready(self, node: NodeId) -> None:
        """Put a node into the heap; if its rank has changed since, a second entry goes before the first."""
        self._ready.add(node)
        rank = 0 if self._nodes[node].declaration.is_async else self._distance[node]
        heappush(self._heap, (rank, self._position[node], node))

    def _leave(self, node: NodeId, state: set[NodeId], what: str) -> None:
        if node not in state:
            raise InvariantError(f"node {node} is {what} but was not running")
        state.remove(node)
