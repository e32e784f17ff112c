"""Describe node classes with a schema to the control process."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from comfyserverless.core.dynamic_inputs import expand
from comfyserverless.core.hosting import InputInfo, NodeInfo, OutputInfo, ValidatorInfo
from comfyserverless.host.api.io.info import object_info
from comfyserverless.host.api.io.node import ComfyNode
from comfyserverless.host.api.io.schema import Schema
from comfyserverless.host.jsonsafe import json_safe


def is_v3(cls: Any) -> bool:
    """Tell whether a node class has a schema (V3); the others are described by attributes (V1)."""
    return isinstance(cls, type) and issubclass(cls, ComfyNode)


def describe_v3(
    cls: type[ComfyNode],
    submitted: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    display_name: str | None = None,
) -> NodeInfo:
    """Describe a class afresh: its schema is asked for again, so choices that depend on files are up to date.

    submitted: the inputs of a node of a prompt, name -> literal, None (or anything) for a link. With it the
    inputs are those that this node has: containers of inputs are expanded to dotted names, and a class that
    accepts all inputs declares what was submitted. Without it containers stand as they were declared. name,
    display_name: under which the class is registered. Raises whatever the class's define_schema raises.
    """
    schema = cls.GET_SCHEMA()
    info = json_safe(object_info(schema, cls.RELATIVE_PYTHON_MODULE or "nodes"))
    info["name"] = name or schema.node_id
    info["display_name"] = schema.display_name or display_name
    return NodeInfo(
        name=info["name"],
        inputs=_declared(schema) if submitted is None else _submitted(schema, submitted),
        outputs=tuple(_output(output) for output in schema.outputs),
        hidden=schema.hidden_tags(),
        info=info,
        output_node=bool(schema.is_output_node),
        input_is_list=bool(schema.is_input_list),
        is_async=inspect.iscoroutinefunction(cls.execute),
        not_idempotent=bool(schema.not_idempotent),
        has_change_token=cls.overrides("fingerprint_inputs"),
        has_lazy_check=cls.overrides("check_lazy_status"),
        validator=_validator(cls) if cls.overrides("validate_inputs") else None,
    )


def _declared(schema: Schema) -> tuple[InputInfo, ...]:
    return tuple(
        _input(name, kind, options, section)
        for section, entries in schema.sections().items()
        for name, (kind, options) in entries.items()
    )


def _submitted(schema: Schema, submitted: Mapping[str, Any]) -> tuple[InputInfo, ...]:
    leaves = expand(schema.sections(), submitted).leaves
    inputs = [_input(leaf.name, leaf.type, leaf.options, leaf.section) for leaf in leaves]
    if schema.accept_all_inputs:
        known = {leaf.name for leaf in leaves}
        inputs += [InputInfo(name, "*", {}, "optional") for name in submitted if name not in known]
    return tuple(inputs)


def _input(name: str, kind: Any, options: Mapping[str, Any], section: str) -> InputInfo:
    return InputInfo(name, json_safe(kind), json_safe(dict(options)), section, _matches_any(kind))


def _output(output: Any) -> OutputInfo:
    kind = output.get_io_type()
    return OutputInfo(
        type="COMBO" if isinstance(kind, list) else str(kind),
        name=output.display_name or str(output.io_type),
        tooltip=output.tooltip or "",
        is_list=bool(output.is_output_list),
        matches_any=_matches_any(kind),
    )


def _validator(cls: type[ComfyNode]) -> ValidatorInfo:
    given = inspect.signature(cls.validate_inputs).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = tuple(each.name for each in given if each.kind in named)
    return ValidatorInfo(
        names=tuple(name for name in names if name != "input_types"),
        takes_all=any(each.kind is inspect.Parameter.VAR_KEYWORD for each in given),
        takes_types="input_types" in names,
    )


def _matches_any(kind: Any) -> bool:
    """Tell whether a type object says that it differs from nothing."""
    return isinstance(kind, str) and not (kind != "\0no such type")  # noqa: SIM202  `!=` is what packs override
