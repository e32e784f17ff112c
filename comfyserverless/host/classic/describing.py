"""Describe a class of the first contract; `INPUT_TYPES` is called each time, its answer may differ.

What it returns may be a dict subclass that claims to hold any key, and type names may be text subclasses with a
`!=` of their own: both are asked in the way that packs rely on (`in`, `[]`, `!=`), and never copied first.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from comfyserverless.core.hosting import InputInfo, NodeInfo, OutputInfo, ValidatorInfo
from comfyserverless.host.contract import ClassEntry
from comfyserverless.host.jsonsafe import json_safe

_SECTIONS = ("required", "optional")
_NO_TYPE = "\0no type"
_FLAGS = {
    "DEPRECATED": "deprecated",
    "EXPERIMENTAL": "experimental",
    "DEV_ONLY": "dev_only",
    "API_NODE": "api_node",
    "HAS_INTERMEDIATE_OUTPUT": "has_intermediate_output",
}


def describe(entry: ClassEntry, given: Mapping[str, Any] | None) -> NodeInfo:
    """Describe a class. given: submitted inputs, so that those that it takes by any name are known.

    Raises what the class's own code raises.
    """
    cls = entry.cls
    declared = cls.INPUT_TYPES()
    hidden = {str(name): tag for name, tag in _items(declared, "hidden") if isinstance(tag, str)}
    function = _function(cls, str(cls.FUNCTION))
    return NodeInfo(
        name=entry.name,
        inputs=tuple(_inputs(declared, given or {})),
        outputs=tuple(_outputs(cls)),
        hidden=hidden,
        info=_info(entry, declared),
        output_node=getattr(cls, "OUTPUT_NODE", False) is True,
        input_is_list=bool(getattr(cls, "INPUT_IS_LIST", False)),
        is_async=inspect.iscoroutinefunction(function),
        not_idempotent=bool(getattr(cls, "NOT_IDEMPOTENT", False)),
        has_change_token=hasattr(cls, "IS_CHANGED"),
        has_lazy_check=hasattr(cls, "check_lazy_status"),
        validator=_validator(cls),
    )


def _function(cls: Any, name: str) -> Any:
    function = getattr(cls, name)
    return inspect.unwrap(function) if callable(function) else function


def _inputs(declared: Any, given: Mapping[str, Any]) -> Iterable[InputInfo]:
    seen: set[str] = set()
    for section in _SECTIONS:
        for name, spec in _items(declared, section):
            seen.add(str(name))
            yield _input(str(name), spec, section)
    for name in given:
        if name in seen:
            continue
        for section in _SECTIONS:
            names = declared.get(section) if isinstance(declared, Mapping) else None
            if names is not None and name in names:
                yield _input(name, names[name], section)
                break


def _items(declared: Any, section: str) -> Iterable[tuple[Any, Any]]:
    names = declared[section] if section in declared else None  # noqa: SIM401 - `in` and `[]` may be theirs
    return [] if not names else [(name, names[name]) for name in names]


def _input(name: str, spec: Any, section: str) -> InputInfo:
    parts = list(spec) if isinstance(spec, tuple | list) else [spec]
    kind = parts[0] if parts else "*"
    options = parts[1] if len(parts) > 1 and isinstance(parts[1], Mapping) else {}
    return InputInfo(name, _type(kind), json_safe(options), section, _matches_any(kind))


def _outputs(cls: Any) -> Iterable[OutputInfo]:
    types = tuple(getattr(cls, "RETURN_TYPES", ()) or ())
    names = tuple(getattr(cls, "RETURN_NAMES", None) or ())
    tooltips = tuple(getattr(cls, "OUTPUT_TOOLTIPS", None) or ())
    lists = tuple(getattr(cls, "OUTPUT_IS_LIST", None) or ())
    for slot, kind in enumerate(types):
        shown = _type(kind)
        yield OutputInfo(
            type=shown,
            name=str(names[slot]) if slot < len(names) else shown if isinstance(shown, str) else "COMBO",
            tooltip=str(tooltips[slot] or "") if slot < len(tooltips) else "",
            is_list=bool(lists[slot]) if slot < len(lists) else False,
            matches_any=_matches_any(kind),
        )


def _type(kind: Any) -> str | list[Any]:
    if isinstance(kind, str):
        return str(json_safe(kind))
    if isinstance(kind, list | tuple | set | frozenset) or hasattr(kind, "__iter__"):
        return [json_safe(item) for item in kind]
    return str(getattr(kind, "value", kind))


def _matches_any(kind: Any) -> bool:
    """Tell whether a type says of itself that it differs from no other; the operator is asked, not the text."""
    return isinstance(kind, str) and (kind == "*" or not (kind != _NO_TYPE))  # noqa: SIM202 - it is theirs


def _validator(cls: Any) -> ValidatorInfo | None:
    function = getattr(cls, "VALIDATE_INPUTS", None)
    if function is None:
        return None
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ValidatorInfo()
    names = tuple(each.name for each in parameters if each.kind in _BY_NAME and each.name != "cls")
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
    return ValidatorInfo(names, takes_all, "input_types" in names)


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _info(entry: ClassEntry, declared: Any) -> dict[str, Any]:
    cls = entry.cls
    types = list(getattr(cls, "RETURN_TYPES", ()) or ())
    names = getattr(cls, "RETURN_NAMES", None)
    lists = getattr(cls, "OUTPUT_IS_LIST", None)
    info: dict[str, Any] = {
        "input": json_safe(declared),
        "input_order": {str(section): [str(name) for name in declared[section] or ()] for section in declared},
        "is_input_list": bool(getattr(cls, "INPUT_IS_LIST", False)),
        "output": [_type(kind) for kind in types],
        "output_is_list": [bool(item) for item in lists] if lists else [False] * len(types),
        "output_name": json_safe(list(names)) if names else [_type(kind) for kind in types],
        "name": entry.name,
        "display_name": entry.display_name,
        "description": str(getattr(cls, "DESCRIPTION", "") or ""),
        "python_module": entry.python_module,
        "category": str(getattr(cls, "CATEGORY", "sd") or "sd"),
        "output_node": getattr(cls, "OUTPUT_NODE", False) is True,
    }
    if getattr(cls, "OUTPUT_TOOLTIPS", None):
        info["output_tooltips"] = json_safe(list(cls.OUTPUT_TOOLTIPS))
    for attribute, key in _FLAGS.items():
        if getattr(cls, attribute, False):
            info[key] = True
    if getattr(cls, "SEARCH_ALIASES", None):
        info["search_aliases"] = json_safe(list(cls.SEARCH_ALIASES))
    if getattr(cls, "ESSENTIALS_CATEGORY", None):
        info["essentials_category"] = str(cls.ESSENTIALS_CATEGORY)
    return info
