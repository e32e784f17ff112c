"""Call node classes with a schema: hidden inputs set, dotted names nested, and results in one form."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

from comfyserverless.core.dynamic_inputs import expand, fold
from comfyserverless.core.hosting import NodeInfo
from comfyserverless.host.api.io.node import ComfyNode, NodeOutput
from comfyserverless.host.api.io.schema import Schema
from comfyserverless.host.blocking import ExecutionBlocker

Method = Literal["execute", "check_lazy_status", "validate_inputs", "fingerprint_inputs"]


def prepare_v3(
    cls: type[ComfyNode], hidden: Mapping[str, Any] | None = None, method: Method = "execute"
) -> Callable[..., Any]:
    """Return what runs one call of a node: a function of its inputs by submitted name (as keywords).

    hidden: name -> value, as `NodeInfo.hidden` names them. The function is a coroutine function if the method
    is one. `execute` gives a NodeOutput; the others what the class gives. check_lazy_status gets pairs (value,
    submitted name) for what stands in a container; validate_inputs only what it names (`input_types` too, if
    given). With inputs as lists (is_input_list) values are lists, also those of containers.
    """
    clone = cls.locked_clone(hidden)
    bound = getattr(clone, method)
    if inspect.iscoroutinefunction(bound):

        async def call_async(**values: Any) -> Any:
            return _answer(clone, method, await bound(**_arguments(clone, method, values)))

        return call_async

    def call(**values: Any) -> Any:
        return _answer(clone, method, bound(**_arguments(clone, method, values)))

    return call


def normalise_v3(output: Any, info: NodeInfo) -> dict[str, Any]:
    """Return what a node returned as an answer of `pack.call`, its values still Python objects.

    {result: list of values, ui: dict or None, expand: graph or None, blocked: None or {message}}. In result a
    blocker is {"__blocked__": message}, and with an expansion a link [id, slot] is {"__link__": [id, slot]};
    the value of a slot that is a list is one. Raises TypeError for what nodes may not return.
    """
    returned = NodeOutput.of(output, info.name)
    blocked = returned.block_execution
    message = blocked if isinstance(blocked, str) else None
    lists = [slot.is_list for slot in info.outputs]
    return {
        "result": [
            _value(value, index < len(lists) and lists[index], returned.expand is not None)
            for index, value in enumerate(returned.args)
        ],
        "ui": ui_dict(returned.ui),
        "expand": None if returned.expand is None else dict(returned.expand),
        "blocked": None if blocked is None or blocked is False else {"message": message},
    }


def ui_dict(ui: Any) -> dict[str, Any] | None:
    """Return a ui dict or a ui helper as a dict, None for None. Raises TypeError for anything else."""
    as_dict = getattr(ui, "as_dict", None)
    made = as_dict() if callable(as_dict) else ui
    if made is not None and not isinstance(made, Mapping):
        raise TypeError(f"ui is a {type(ui).__name__}; it has to be a dict or a helper of comfy_api's ui")
    return None if made is None else dict(made)


def _answer(clone: type[ComfyNode], method: Method, returned: Any) -> Any:
    return clone.normalized(returned) if method == "execute" else returned


def _arguments(clone: type[ComfyNode], method: Method, values: dict[str, Any]) -> dict[str, Any]:
    """Nest the values, and leave out what a validator does not name."""
    schema = clone.cached_schema()
    leaf_value = (lambda value, name: (value, name)) if method == "check_lazy_status" else None
    arguments = fold(values, expand(schema.sections(), _keys(schema, values)), leaf_value)
    if method != "validate_inputs":
        return arguments
    accepted = inspect.signature(clone.validate_inputs).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in accepted):
        return arguments
    names = {each.name for each in accepted}
    return {name: value for name, value in arguments.items() if name in names}


def _keys(schema: Schema, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values as they decide about inputs: of lists, the first element."""
    if not schema.is_input_list:
        return values
    return {
        name: value[0] if isinstance(value, list | tuple) and value else value for name, value in values.items()
    }


def _value(value: Any, is_list: bool, expands: bool) -> Any:
    if isinstance(value, ExecutionBlocker):
        return {"__blocked__": value.message}
    if expands and _is_link(value):
        return {"__link__": list(value)}
    if not is_list or value is None:
        return value
    return [_value(item, False, False) for item in value]


def _is_link(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and type(value[1]) in (int, float)
    )
