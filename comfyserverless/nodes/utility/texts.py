"""Change, compare and take apart texts, in the control process: each costs no more than its text is long."""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import Value, walk
from comfyserverless.graph.declaration import InputSpec, Lowering, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.specs import choice, text
from comfyserverless.nodes.taking import Inputs
from comfyserverless.nodes.utility.growing import LETTERS, dynamic, growing, grown
from comfyserverless.nodes.utility.values import check_length, resolved, take_text, take_whole

_MODULE = "comfy_extras.nodes_string"
_STRING = (OutputSpec("STRING"),)
#: Places of a text that are tried for the beginning of a JSON object.
_MAX_JSON_STARTS = 200
_MAX_FIELD_CHARS = 10_000


async def _concatenate(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    first, second = await take_text(ctx, inputs, "string_a"), await take_text(ctx, inputs, "string_b")
    joined = (await take_text(ctx, inputs, "delimiter")).join((first, second))
    check_length(len(joined))
    return NodeResult((joined,))


async def _substring(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Cut as Python's slices do: negative places count from the end."""
    start, end = await take_whole(ctx, inputs, "start"), await take_whole(ctx, inputs, "end")
    return NodeResult(((await take_text(ctx, inputs, "string"))[start:end],))


async def _length(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return NodeResult((len(await take_text(ctx, inputs, "string")),))


_CASES: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {"UPPERCASE": str.upper, "lowercase": str.lower, "Capitalize": str.capitalize, "Title Case": str.title}
)
_TRIMS: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {"Both": str.strip, "Left": str.lstrip, "Right": str.rstrip}
)
_COMPARISONS: Mapping[str, Callable[[str, str], bool]] = MappingProxyType(
    {"Starts With": str.startswith, "Ends With": str.endswith, "Equal": str.__eq__}
)


def _changed(changes: Mapping[str, Callable[[str], str]]) -> Lowering:
    async def lower(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
        return NodeResult((changes[inputs["mode"]](await take_text(ctx, inputs, "string")),))

    return lower


async def _replace(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    whole_text, find = await take_text(ctx, inputs, "string"), await take_text(ctx, inputs, "find")
    replacement = await take_text(ctx, inputs, "replace")
    count = whole_text.count(find)
    check_length(len(whole_text) + count * (len(replacement) - len(find)))
    return NodeResult((whole_text.replace(find, replacement),))


async def _contains(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    whole_text, part = await _pair(ctx, inputs, "string", "substring")
    return NodeResult((part in whole_text,))


async def _compare(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    first, second = await _pair(ctx, inputs, "string_a", "string_b")
    return NodeResult((_COMPARISONS[inputs["mode"]](first, second),))


async def _pair(ctx: LoweringContext, inputs: Inputs, *names: str) -> tuple[str, str]:
    first, second = [await take_text(ctx, inputs, name) for name in names]
    return (first, second) if inputs["case_sensitive"] else (first.lower(), second.lower())


async def _format(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    pattern = await take_text(ctx, inputs, "f_string")
    values = {name: await resolved(ctx, value) for name, value in grown(inputs, "values").items()}
    try:
        formatted = _Formatter().vformat(pattern, (), values)
    except (LookupError, TypeError, ValueError) as exc:
        reason = f"there is no value {exc}" if isinstance(exc, KeyError) else str(exc)
        raise PromptError(f"The text cannot be formatted: {reason}") from exc
    return NodeResult((formatted,))


class _Formatter(string.Formatter):
    """Python's formatting, except for attributes, which values of a graph have none of, and endless widths."""

    def __init__(self) -> None:
        self._chars = 0

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        """Return what a field stands for; items of lists and dicts may be named. Raises ValueError."""
        if "." in field_name.partition("[")[0]:
            raise ValueError(f"{{{field_name}}} asks for an attribute; only names and [items] are possible")
        found, used = super().get_field(field_name, args, kwargs)
        if not all(leaf is None or isinstance(leaf, str | int | float) for leaf in walk(found)):
            raise ValueError(f"{{{field_name}}} is no text and no number")
        return found, used

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return one formatted field. Raises ValueError and PromptError if it, or the text, is too long."""
        numbers = "".join(char if char.isdigit() else " " for char in format_spec).split()
        if any(len(number) > 9 or int(number) > _MAX_FIELD_CHARS for number in numbers):
            raise ValueError(f"a field may be {_MAX_FIELD_CHARS} characters wide")
        formatted: str = super().format_field(value, format_spec)
        self._chars += len(formatted)
        check_length(self._chars)
        return formatted


async def _extract(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    found = _first_object(await take_text(ctx, inputs, "json_string"))
    value = found.get(await take_text(ctx, inputs, "key"))
    if value is None:
        return NodeResult(("",))
    return NodeResult(
        (json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value),)
    )


def _first_object(whole_text: str) -> dict[str, Any]:
    """Return the first JSON object that a text holds, among other words or in a code block."""
    decoder = json.JSONDecoder()
    start = -1
    for _ in range(_MAX_JSON_STARTS):
        start = whole_text.find("{", start + 1)
        if start < 0:
            break
        try:
            found, _ = decoder.raw_decode(whole_text, start)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return {}


def _as_json(name: str, kind: type) -> Lowering:
    async def lower(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
        value: Value = await resolved(ctx, inputs.get(name))
        if not isinstance(value, kind):
            raise PromptError(f"Input {name!r} takes a {kind.__name__}, but got {type(value).__name__}")
        try:
            written = json.dumps(value, indent=inputs.get("indent", 2) or None, ensure_ascii=False)
        except TypeError as exc:
            raise PromptError(f"Input {name!r} holds what JSON has no words for: {exc}") from exc
        check_length(len(written))
        return NodeResult((written,))

    return lower


def _json_node(name: str, title: str, socket: str, kind: type, described: str) -> NodeDeclaration:
    indent = {"default": 2, "min": 0, "max": 8, "tooltip": "Spaces per level; 0 writes one line."}
    return NodeDeclaration(
        name=name,
        display_name=title,
        category="utils/string",
        python_module=_MODULE,
        lower=_as_json(socket, kind),
        inputs=(InputSpec(socket, described), InputSpec("indent", "INT", indent, "optional")),
        outputs=_STRING,
    )


def _node(
    name: str, title: str, lower: Lowering, *inputs: InputSpec, gives: OutputSpec = _STRING[0]
) -> NodeDeclaration:
    return NodeDeclaration(
        name=name,
        display_name=title,
        category="utils/string",
        python_module=_MODULE,
        lower=lower,
        inputs=inputs,
        outputs=(gives,),
    )


def lines(name: str) -> InputSpec:
    """Declare a text that may have several lines."""
    return text(name, multiline=True)


_CASE_SENSITIVE = InputSpec("case_sensitive", "BOOLEAN", {"default": True})
_PATTERN = (
    growing("values", InputSpec("value", "*"), (0, len(LETTERS)), LETTERS),
    text("f_string", default="{a}", multiline=True),
)

NODES = (
    _node(
        "StringConcatenate",
        "Concatenate",
        _concatenate,
        lines("string_a"),
        lines("string_b"),
        text("delimiter", default="", multiline=False),
    ),
    _node(
        "StringSubstring",
        "Substring",
        _substring,
        lines("string"),
        InputSpec("start", "INT"),
        InputSpec("end", "INT"),
    ),
    _node("StringLength", "Length", _length, lines("string"), gives=OutputSpec("INT", "length")),
    _node("CaseConverter", "Case Converter", _changed(_CASES), lines("string"), choice("mode", tuple(_CASES))),
    _node("StringTrim", "Trim", _changed(_TRIMS), lines("string"), choice("mode", tuple(_TRIMS))),
    _node("StringReplace", "Replace", _replace, lines("string"), lines("find"), lines("replace")),
    _node(
        "StringContains",
        "Contains",
        _contains,
        lines("string"),
        lines("substring"),
        _CASE_SENSITIVE,
        gives=OutputSpec("BOOLEAN", "contains"),
    ),
    _node(
        "StringCompare",
        "Compare",
        _compare,
        lines("string_a"),
        lines("string_b"),
        choice("mode", tuple(_COMPARISONS)),
        _CASE_SENSITIVE,
        gives=OutputSpec("BOOLEAN"),
    ),
    NodeDeclaration(
        name="StringFormat",
        display_name="Format Text",
        category="utils/string",
        description="Fill {a}, {b:.2f} ... of a text with values, as Python's str.format does.",
        python_module=_MODULE,
        lower=_format,
        inputs=_PATTERN,
        dynamic_inputs=dynamic(_PATTERN),
        outputs=_STRING,
    ),
    NodeDeclaration(
        name="JsonExtractString",
        display_name="Extract Text from JSON",
        category="utils/string",
        description="The value of a key in the first JSON object of a text; empty if there is none.",
        python_module=_MODULE,
        lower=_extract,
        inputs=(lines("json_string"), text("key", multiline=False)),
        outputs=_STRING,
    ),
    _json_node("ConvertDictionaryToString", "Convert Dictionary to String", "dictionary", dict, "DICT"),
    _json_node("ConvertArrayToString", "Convert Array to String", "array", list, "ARRAY"),
)
"""The declarations of this module, in the order of the node menu."""
