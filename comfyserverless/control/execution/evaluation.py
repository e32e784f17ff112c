"""Make the result of one node: its inputs, its calls, and what they expand to.

A node is lowered as soon as its inputs are known, even as symbols. Three kinds wait for their turn: output
nodes, so that a failure before them leaves no file behind; nodes of packs, which run one after the other in
ComfyUI and may do anything; and nodes that ask for lazy inputs, which is part of the order that users see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from comfyserverless.control.execution.node_run import NodeRun, Stop
from comfyserverless.core.ids import NodeId
from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import NodeDeclaration
from comfyserverless.graph.jsonsafe import brief
from comfyserverless.graph.lowering import Blocked, NodeResult
from comfyserverless.graph.plan import Link
from comfyserverless.graph.semantics.expansion import links_in, resolved
from comfyserverless.graph.semantics.inputs import (
    NodeInputError,
    is_lazy,
    is_raw,
    linked_sources,
    newly_needed,
    read_slot,
    specs_of,
)
from comfyserverless.graph.semantics.mapping import blocker_in, calls_of
from comfyserverless.graph.semantics.merging import CallResult, merge, merge_ui
from comfyserverless.graph.semantics.reach import check_reach

_NOT_THERE: Sequence[Value] = (None,)
"""What stands for an input without a value."""


class NoNodeError(LookupError):
    """There is no such node in the prompt."""


class World(Protocol):
    """What a node's evaluation needs of its run."""

    async def result_of(self, node: NodeId) -> NodeResult:
        """Wait for the result of another node. Raises NoNodeError if there is none, and its failure."""

    async def grow(self, run: NodeRun, results: Sequence[CallResult]) -> Sequence[NodeId]:
        """Add the nodes that results expand to; returns the output nodes among them.

        Raises ExpansionError.
        """

    def hold(self, run: NodeRun, result: NodeResult) -> None:
        """Keep what a result of a node mentions for the run."""


def waits_for_turn(declaration: NodeDeclaration) -> bool:
    """Tell whether a node is not to be lowered before its turn."""
    return declaration.output_node or declaration.lower_calls is not None or declaration.check_lazy is not None


class Evaluation:
    """Make the result of one node of a run."""

    def __init__(self, run: NodeRun, world: World) -> None:
        self._run = run
        self._world = world
        self._node = run.node
        self._declaration = run.node.declaration
        self._specs = specs_of(run.node)

    async def result(self) -> NodeResult:
        """Return the result of the node. Raises what its lowering and those before it raise."""
        run, given = self._run, self._run.given
        try:
            await self._gather(name for name in self._node.inputs if self._is_given(name))
            if waits_for_turn(self._declaration):
                await run.turn.wait()
            if self._declaration.check_lazy is not None:
                await self._ask()
            results = await self._call(calls_of(self._all(given), self._declaration))
            if any(isinstance(each, NodeResult) and each.expand for each in results):
                results = await self._expand(results)
            result = merge(results, self._declaration.outputs)
            self._world.hold(run, result)
        finally:
            run.context.release()
        return result

    # -- inputs -----------------------------------------------------------------------------------

    def _is_given(self, name: str) -> bool:
        """Tell whether an input has a value without being asked for."""
        spec, value = self._specs.get(name), self._node.inputs[name]
        if not isinstance(value, Link):
            return spec is not None
        if spec is None:
            return self._declaration.takes_undeclared_links
        return is_raw(spec) or not is_lazy(spec)

    async def _gather(self, names: Iterable[str]) -> None:
        """Put the values of inputs into `given`; of a slot that was not given, None."""
        for name in names:
            value = self._node.inputs[name]
            if not isinstance(value, Link):
                self._run.given[name] = (value.value,)
                continue
            spec = self._specs.get(name)
            if not (is_raw(spec) and is_lazy(spec)):
                values = await self._read(name, value)
            self._run.given[name] = ([value.source, value.slot],) if is_raw(spec) else values

    async def _read(self, name: str, link: Link) -> Sequence[Value]:
        try:
            result = await self._world.result_of(link.source)
        except NoNodeError as exc:
            raise NodeInputError(
                f"Input {name!r} is linked to node {brief(link.source)}, which does not exist"
            ) from exc
        values = read_slot(result, link.slot)
        return _NOT_THERE if values is None else values

    def _all(self, given: Mapping[str, Sequence[Value]]) -> dict[str, Sequence[Value]]:
        """Return the values of all inputs in submitted order; those that were not asked for hold None."""
        lazy = {name for name in self._node.inputs if is_lazy(self._specs.get(name))}
        return {
            name: given.get(name, _NOT_THERE) for name in self._node.inputs if name in given or name in lazy
        }

    async def _ask(self) -> None:
        """Ask the node which lazy inputs it needs, and get them, until it names no new one."""
        check = self._declaration.check_lazy
        assert check is not None
        while True:
            calls = calls_of(self._all(self._run.given), self._declaration)
            free = [call for call in calls if blocker_in(call, self._declaration) is None]
            asked = await check(self._run.context, free) if free else ()
            names = newly_needed(asked, self._node, self._run.given)
            if not names:
                return
            await self._run.stop(Stop(tuple(linked_sources(self._node, names))))
            await self._gather(names)

    # -- calls ------------------------------------------------------------------------------------

    async def _call(self, calls: Sequence[Mapping[str, Value]]) -> list[CallResult]:
        """Make the calls that no blocked value holds up; returns the outcome of each."""
        blockers = [blocker_in(call, self._declaration) for call in calls]
        messages = (each.message for each in blockers if each is not None and each.message is not None)
        self._run.blocked_message = next(messages, None)
        free = [call for call, blocker in zip(calls, blockers, strict=True) if blocker is None]
        made = iter(await self._lower(free) if free else ())
        return [Blocked() if blocker is not None else next(made) for blocker in blockers]

    async def _lower(self, calls: Sequence[Mapping[str, Value]]) -> Sequence[NodeResult]:
        declaration, context = self._declaration, self._run.context
        if declaration.lower_calls is not None:
            return await declaration.lower_calls(context, calls)
        results = []
        for call in calls:
            check_reach(call, self._specs)
            context.begin_call()
            results.append(await declaration.lower(context, call))
        return results

    async def _expand(self, results: list[CallResult]) -> list[CallResult]:
        """Let the nodes that results stand for run, and take their values."""
        run = self._run
        await run.turn.wait()
        links = links_in(results)
        outputs = await self._world.grow(run, results)
        run.has_expanded = True
        sources = tuple(dict.fromkeys(link.source for link in links))
        await run.stop(Stop(sources, expands=True, outputs=tuple(outputs), ui=merge_ui(results)))
        ends = {link: read_slot(await self._result_of(link), link.slot) for link in links}
        return resolved(results, ends)

    async def _result_of(self, link: Link) -> NodeResult:
        try:
            return await self._world.result_of(link.source)
        except NoNodeError as exc:
            where = f"node {brief(link.source)}, which does not exist"
            raise NodeInputError(f"A result of node {self._node.id} is a link to {where}") from exc
