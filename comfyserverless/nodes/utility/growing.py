"""Declare inputs whose number or kind depends on what is submitted, in the shapes of ComfyUI's newer nodes.

They are shown in `/object_info` as one input each (see `core.dynamic_inputs`), and submitted under dotted names
(`images.image0`, `resize_type.width`); a lowering gets them under those names.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from comfyserverless.core.dynamic_inputs import AUTOGROW, DYNAMIC_COMBO, expand
from comfyserverless.core.values import Value
from comfyserverless.graph.compatibility import MATCH_TYPE
from comfyserverless.graph.declaration import DynamicInputs, InputSpec, OutputSpec, Section
from comfyserverless.nodes.taking import Inputs

LETTERS = tuple(string.ascii_lowercase)
"""Names of the growing inputs of nodes with formulas and patterns."""

Option = tuple[str, tuple[InputSpec, ...]]
"""A choice of a combo, and the inputs that it brings."""


def matching(name: str, template: str, allowed: str = "*", **options: Any) -> InputSpec:
    """Declare an input that takes what others of its template take; allowed: types with commas between."""
    kind = {"template_id": template, "allowed_types": allowed}
    return InputSpec(name, MATCH_TYPE, {**options, "template": kind})


def matched(name: str, template: str, *, is_list: bool = False, tooltip: str = "") -> OutputSpec:
    """Declare an output of the type that the inputs with its template have."""
    return OutputSpec(MATCH_TYPE, name, tooltip, is_list, match=template)


def growing(
    name: str, item: InputSpec, count: tuple[int, int], names: Sequence[str] = (), **options: Any
) -> InputSpec:
    """Declare a group of inputs like `item`, from least to most; names: theirs, else item0, item1 ..."""
    least, most = count
    template: dict[str, Any] = {"input": _sections([item])}
    template |= (
        {"names": list(names), "min": least} if names else {"prefix": item.name, "min": least, "max": most}
    )
    return InputSpec(name, AUTOGROW, {**options, "template": template})


def choosing(name: str, options: Sequence[Option], **more: Any) -> InputSpec:
    """Declare a combo whose choice brings inputs of its own."""
    shown = [{"key": key, "inputs": _sections(inputs)} for key, inputs in options]
    return InputSpec(name, DYNAMIC_COMBO, {**more, "options": shown})


def dynamic(declared: Sequence[InputSpec]) -> DynamicInputs:
    """Return what resolves growing and choosing inputs of a declaration, given what was submitted."""
    sections = _sections(declared)

    def resolve(submitted: Mapping[str, Any]) -> Sequence[InputSpec]:
        leaves = expand(sections, submitted).leaves
        return [InputSpec(leaf.name, leaf.type, leaf.options, _section(leaf.section)) for leaf in leaves]

    return resolve


def grown(inputs: Inputs, group: str) -> dict[str, Value]:
    """Return the values of a group that were given, by name without the group, in order of their numbers."""
    start = f"{group}."
    names = [name.removeprefix(start) for name in inputs if name.startswith(start)]
    return {name: inputs[start + name] for name in sorted(names, key=_by_number)}


def _sections(inputs: Iterable[InputSpec]) -> dict[str, dict[str, Any]]:
    """Write inputs in the shape of `/object_info`; a combo with fixed choices in the newer form."""
    sections: dict[str, dict[str, Any]] = {}
    for spec in inputs:
        kind, options = spec.type, dict(spec.options)
        if isinstance(kind, tuple):
            kind, options = "COMBO", {**options, "options": list(kind)}
        sections.setdefault(spec.section, {})[spec.name] = [kind, options]
    return sections


def _section(name: str) -> Section:
    return "optional" if name == "optional" else "required"


def _by_number(name: str) -> tuple[str, int]:
    stem = name.rstrip(string.digits)
    digits = name[len(stem) :]
    return stem, int(digits) if digits else -1
