"""Answer what nodes of packs ask for while they run, above all to run a built-in node for them.

A built-in node is lowered as always, for the run, tenant and node of the call that asks: it is scheduled,
charged and cancelled with it. Its results are kept until they are read.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

from comfyserverless.control.context import NodeContext
from comfyserverless.control.hosting.host import PackHost
from comfyserverless.control.hosting.sharing import PromptParts
from comfyserverless.core import messages as wire
from comfyserverless.core import values
from comfyserverless.core.errors import PromptError, WorkerError
from comfyserverless.core.ids import InvocationId, NodeId
from comfyserverless.core.values import Output, Value, outputs_in
from comfyserverless.graph.declaration import NodeDeclaration
from comfyserverless.graph.lowering import Items, LoweringContext, StepProgress
from comfyserverless.nodes.registry import BUILTIN

log = logging.getLogger(__name__)

_INTERRUPTED = "InterruptProcessingException"

Answer = Callable[[LoweringContext | None, Any], Any]


class _Scope:
    """One call that runs: its node's context, and what it has asked for.

    After its node was lowered the context may be gone: then nobody can ask any more.
    """

    def __init__(self, context: NodeContext) -> None:
        self.context = context
        #: by request, all and only contexts whose results are held.
        self.children: dict[int, NodeContext] = {}
        self.tasks: set[asyncio.Task[None]] = set()


class HostRequests:
    """Serve the requests of the node host. find_internal: declarations that only the host may name."""

    def __init__(self, host: PackHost, find_internal: Callable[[str], NodeDeclaration | None]) -> None:
        self._host = host
        self._find_internal = find_internal
        #: by request, scopes of calls that run again, until the answer is read.
        self._again: dict[int, _Scope] = {}
        #: all and only calls that wait for their answers.
        self._scopes: dict[InvocationId, _Scope] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: calls that were answered: what they made may be lost and made again, while their run goes on.
        self._contexts: WeakValueDictionary[InvocationId, NodeContext] = WeakValueDictionary()
        self._parts = PromptParts()
        self._numbers = itertools.count()
        self._answers: dict[str, Answer] = {}
        host.serve_requests(self._take)
        host.listen("progress", self._on_progress)
        host.listen("text", self._on_text)
        host.listen("metadata", self._on_metadata)
        host.listen("read", self._on_read)

    def answer(self, kind: str, answer: Answer) -> None:
        """Answer a kind of requests: called with the context of the call that asks (or None), and the payload.

        It gives a value tree, or something to await that does.
        """
        self._answers[kind] = answer

    @contextmanager
    def opened(self, invocation: InvocationId, context: LoweringContext) -> Iterator[None]:
        """Let an invocation ask, for the node of a context, within the block."""
        assert isinstance(context, NodeContext)
        scope = self._scopes[invocation] = _Scope(context)
        self._parts.note(invocation, context.hidden)
        try:
            yield
        finally:
            del self._scopes[invocation]
            self._contexts[invocation] = context
            for task in scope.tasks:
                task.cancel()
            for child in scope.children.values():
                child.release()

    def places(self, context: LoweringContext) -> dict[str, str]:
        """Return the folders of the tenant of a context."""
        assert isinstance(context, NodeContext)
        return context.places()

    def _take(self, request: wire.HostRequest) -> None:
        scope = self._scopes.get(request.invocation)
        if request.kind == "prompt":
            self._tell_parts(request, scope)
            return
        if scope is None and (context := self._contexts.get(request.invocation)) is not None:
            scope = _Scope(context)  # for this request only: nobody waits for the call itself
            self._again[request.id] = scope
        task = asyncio.get_running_loop().create_task(self._serve(request, scope))
        tasks = self._tasks if scope is None else scope.tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def _tell_parts(self, request: wire.HostRequest, scope: _Scope | None) -> None:
        """Tell about the prompt of a call, also of one that runs again and has nobody who waits for it."""
        context = scope.context if scope else self._contexts.get(request.invocation)
        peek = context.peek if context is not None else lambda _: None
        try:
            found = self._parts.find(request.invocation, values.decode(request.payload), peek)
            self._host.reply(request.id, found)
        except (PromptError, TypeError, ValueError, OverflowError) as exc:  # the last three: no wire form
            self._host.reply(request.id, None, type(exc).__name__, str(exc))

    async def _serve(self, request: wire.HostRequest, scope: _Scope | None) -> None:
        try:
            payload = values.decode(request.payload)
            answer: Any
            if request.kind == "run_node":
                answer = await self._run_node(scope, request.id, payload)
            elif request.kind == "room":
                answer = scope is not None and await scope.context.room(request.invocation)
            elif request.kind in self._answers:
                answer = self._answers[request.kind](scope.context if scope else None, payload)
                if inspect.isawaitable(answer):
                    answer = await answer
            else:
                raise PromptError(f"the server cannot answer {request.kind!r}")
            self._host.reply(request.id, answer)
        except asyncio.CancelledError:
            self._host.reply(request.id, None, _INTERRUPTED, "the prompt was stopped")
            self._release(scope, request.id)
            raise
        except WorkerError as exc:
            self._host.reply(request.id, None, exc.exception_type, str(exc))
        except Exception as exc:  # noqa: BLE001 - border of a node's request: the node gets the error
            self._host.reply(request.id, None, type(exc).__name__, str(exc) or type(exc).__name__)
        else:
            return
        self._release(scope, request.id)

    async def _run_node(self, scope: _Scope | None, request: int, payload: Mapping[str, Any]) -> list[Value]:
        name, inputs = str(payload["class_type"]), dict(payload["inputs"])
        declaration = BUILTIN.get(name) or self._find_internal(name)
        if declaration is None:
            raise PromptError(f"there is no built-in node class {name!r}")
        if scope is None:
            raise PromptError(f"{name} can be run only by a node that runs, for its prompt and its tenant")
        _check_given(declaration, inputs)
        child = scope.children[request] = scope.context.child(f"~{next(self._numbers)}")
        lowering = asyncio.ensure_future(declaration.lower(child, inputs))
        failing = asyncio.ensure_future(child.failed())
        try:
            await asyncio.wait({lowering, failing}, return_when=asyncio.FIRST_COMPLETED)
            if not lowering.done():
                failing.result()
            result = lowering.result()
            await child.finished()
            child.keep(outputs_in([_listed(value) for value in result.outputs]))
            return [await _resolved(child, _listed(value)) for value in result.outputs]
        finally:
            lowering.cancel()
            failing.cancel()

    def _on_progress(self, payload: Any, invocation: InvocationId | None) -> None:
        scope = self._scopes.get(invocation) if invocation else None
        if scope is not None:
            progress = StepProgress(payload["value"], payload["maximum"])
            scope.context.report(progress, payload["preview"], self._node(scope, payload))

    def _on_text(self, payload: Any, invocation: InvocationId | None) -> None:
        scope = self._scopes.get(invocation) if invocation else None
        if scope is not None:
            scope.context.show_text(str(payload["text"]), self._node(scope, payload))

    def _on_read(self, payload: Any, invocation: InvocationId | None) -> None:
        """Hold results no longer than it takes to copy them: a node may ask for many."""
        request = int(payload["request"])
        self._release(self._again.get(request) or self._scopes.get(invocation or InvocationId("")), request)

    def _release(self, scope: _Scope | None, request: int) -> None:
        self._again.pop(request, None)
        child = scope.children.pop(request, None) if scope is not None else None
        if child is not None:
            child.release()

    def _on_metadata(self, payload: Any, invocation: InvocationId | None) -> None:
        """Let later nodes of the prompt save what this one has changed: they share the object."""
        scope = self._scopes.get(invocation) if invocation else None
        shared = scope.context.hidden.extra_pnginfo if scope is not None else None
        changed = json.loads(payload["extra_pnginfo"])
        if isinstance(shared, dict) and isinstance(changed, dict):
            shared.clear()
            shared.update(changed)

    def _node(self, scope: _Scope, payload: Any) -> NodeId | None:
        node = payload.get("node_id")
        return None if node is None or node == scope.context.hidden.unique_id else NodeId(str(node))


def _check_given(declaration: NodeDeclaration, inputs: Mapping[str, Any]) -> None:
    """Raise PromptError if an input that the class needs is missing."""
    missing = [
        spec.name for spec in declaration.inputs if spec.section == "required" and spec.name not in inputs
    ]
    if missing:
        raise PromptError(f"{declaration.name} needs {', '.join(missing)}")


def _listed(value: Value) -> Value:
    return list(value.values) if isinstance(value, Items) else value


async def _resolved(context: NodeContext, value: Value) -> Value:
    """Return a value tree with every symbol replaced by what it stands for."""
    if type(value) is Output:
        return await context.result(value)
    if type(value) in (list, tuple):
        return [await _resolved(context, item) for item in value]
    if type(value) is dict:
        return {key: await _resolved(context, item) for key, item in value.items()}
    return value
