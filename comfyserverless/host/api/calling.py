"""Call node classes with a schema: hidden inputs set, dotted names nested, results in one form."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

from comfyserverless.core.dynamic_inputs import expand, fold
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


def outcome_v3(output: NodeOutput) -> dict[str, Any]:
    """Return what a node returned as V1 nodes return it: {result: values or blocker, ui, expand}.

    Raises TypeError for a ui that is none.
    """
    blocked = output.block_execution
    result: Any = output.args
    if blocked is not None and blocked is not False:
        result = ExecutionBlocker(blocked if isinstance(blocked, str) else None)
    return {"result": result, "ui": ui_dict(output.ui), "expand": output.expand}


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
