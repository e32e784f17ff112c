"""Lower nodes of packs: one invocation for all mapped calls of a node, and its answers as results of the
node."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from comfyserverless.control.hosting.sharing import needed_parts
from comfyserverless.core.errors import InvariantError
from comfyserverless.core.hosting import NodeInfo
from comfyserverless.core.ids import InvocationId
from comfyserverless.core.values import ObjectRef, Output, TensorRef, Value
from comfyserverless.graph.lowering import Blocked, Emitted, Items, LoweringContext, NodeResult
from comfyserverless.graph.plan import Link

_ACCOUNT_KEYS = ("auth_token_comfy_org", "api_key_comfy_org", "comfy_usage_source")


class CallScopes(Protocol):
    """Who knows the nodes whose calls run now, so that they can ask for something."""

    def opened(self, invocation: InvocationId, context: LoweringContext) -> AbstractContextManager[None]:
        """Let an invocation ask, for the node of a context, within the block."""

    async def answer_of(self, answers: Awaitable[Value]) -> Value:
        """Wait for what a node gives. Raises if nobody is to wait any more for who runs it."""

    def places(self, context: LoweringContext) -> dict[str, str]:
        """Return the folders of the tenant: input, output, temp, user."""


class PackNode:
    """Lower the nodes of one class. scopes: told what runs."""

    def __init__(self, info: NodeInfo, scopes: CallScopes) -> None:
        self._info = info
        self._scopes = scopes
        self._list_slots = [output.is_list for output in info.outputs]

    async def lower(self, context: LoweringContext, inputs: Mapping[str, Value]) -> NodeResult:
        """Lower a single call."""
        return (await self.lower_calls(context, (inputs,)))[0]

    async def lower_calls(
        self, context: LoweringContext, calls: Sequence[Mapping[str, Value]]
    ) -> Sequence[NodeResult]:
        """Run all calls in one invocation. Raises WorkerError if one of them fails."""
        emitted, answers = await self._ask(context, "execute", calls)
        return [
            self._result(answer, Output(emitted.id, "answers", (index,)))
            for index, answer in enumerate(answers)
        ]

    async def check_lazy(self, context: LoweringContext, calls: Sequence[Mapping[str, Value]]) -> Sequence[str]:
        """Ask for the lazy inputs that the calls need, united."""
        _, answers = await self._ask(context, "check_lazy_status", calls)
        return list(dict.fromkeys(name for answer in answers for name in answer["names"]))

    async def _ask(
        self, context: LoweringContext, method: str, calls: Sequence[Mapping[str, Value]]
    ) -> tuple[Emitted, list[dict[str, Any]]]:
        info, hidden = self._info, context.hidden
        is_async = info.is_async and method == "execute"
        emitted = context.emit(
            "pack.call_async" if is_async else "pack.call",
            node={
                "id": hidden.unique_id,
                "class_type": info.name,
                "python_module": info.info.get("python_module", ""),
            },
            method=method,
            calls=[dict(call) for call in calls],
            about=self._about(context),
        )
        with self._scopes.opened(emitted.id, context):
            answers = await self._scopes.answer_of(context.result(emitted.out("answers")))
        if len(answers) != len(calls):
            raise InvariantError(f"{info.name} gave {len(answers)} answers to {len(calls)} calls")
        return emitted, answers

    def _about(self, context: LoweringContext) -> dict[str, Any]:
        """Say what a call is about; of the graph and the workflow, which are large, only that it needs them."""
        hidden, tags = context.hidden, set(self._info.hidden.values())
        return {
            "prompt_id": hidden.prompt_id,
            "run": hidden.run,
            "tenant": hidden.tenant,
            "client_id": hidden.client_id,
            "preview_method": context.preview_method,
            "parts": needed_parts(hidden, tags),
            "extra_data": {key: hidden.extra_data[key] for key in _ACCOUNT_KEYS if key in hidden.extra_data}
            if tags - {"PROMPT", "EXTRA_PNGINFO", "UNIQUE_ID", "DYNPROMPT"}
            else {},
            "places": self._scopes.places(context),
            "hidden": dict(self._info.hidden),
        }

    def _result(self, answer: Mapping[str, Any], out: Output) -> NodeResult:
        blocked = answer["blocked"]
        if blocked is not None:
            outputs: tuple[Value, ...] = (Blocked(blocked["message"]),) * len(self._info.outputs)
            return NodeResult(outputs, answer["ui"])
        expand = answer["expand"]
        has_graph = expand is not None
        values = tuple(
            self._value(slot, value, out["result"][slot], has_graph=has_graph)
            for slot, value in enumerate(answer["result"])
        )
        return NodeResult(values, answer["ui"], _symbolic(expand, out["expand"]) if has_graph else None)

    def _value(self, slot: int, value: Value, out: Output, *, has_graph: bool) -> Value:
        is_list = slot < len(self._list_slots) and self._list_slots[slot]
        if is_list and isinstance(value, list):
            return Items(
                tuple(_item(item, out[index], has_graph=has_graph) for index, item in enumerate(value))
            )
        return _item(value, out, has_graph=has_graph)


def _item(value: Value, out: Output, *, has_graph: bool) -> Value:
    if type(value) is dict and len(value) == 1:
        if "__blocked__" in value:
            return Blocked(value["__blocked__"])
        if has_graph and "__link__" in value:
            source, slot = value["__link__"]
            return Link(source, slot)
    return _symbolic(value, out)


def _symbolic(value: Value, out: Output) -> Value:
    """Return a part of a result with symbols in the place of tensors and objects.

    Literals and handles are there at once, which symbolic nodes need; what takes up room is named by the
    invocation that makes it, so that it is held, and made again if it is lost.
    """
    if type(value) is list:
        return [_symbolic(item, out[index]) for index, item in enumerate(value)]
    if type(value) is dict:
        return {key: _symbolic(item, out[key]) for key, item in value.items()}
    return out if type(value) in (TensorRef, ObjectRef) else value
