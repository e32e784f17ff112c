"""Expand inputs whose number or names depend on what was submitted, and fold their values for the node again.

A node may declare containers beside ordinary inputs (ComfyUI's V3 types). Prompts name their parts with dots,
and the node gets a nested value under the container's own name:

- `COMFY_AUTOGROW_V3` (options `template`: {input, min, prefix and max, or names}): `images.image0`,
  `images.image1` -> {image0: ..., image1: ...}.
- `COMFY_DYNAMICCOMBO_V3` (options `options`: [{key, inputs}]): `mode` holds the chosen key, `mode.width` a part
  of that choice -> {mode: key, width: ...}.
- `COMFY_DYNAMICSLOT_V3` (options `slotType`, `inputs`): parts exist once the slot is filled -> {slot: ...,
  part: ...}.
- `COMFY_DYNAMICGROUP_V3` (options `template`: sections of a row, and min, max): `rows.0.name` -> a list of
  dicts.

They nest. Who uses it: a declaration's `dynamic_inputs` is `[InputSpec(leaf.name, leaf.type, leaf.options,
leaf.section) for leaf in expand(DECLARED, submitted).leaves]`, and its lowering reads
`fold(values, expand(DECLARED, values))`. DECLARED has the shape of `/object_info`'s `input`: section -> name ->
[type, options].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

AUTOGROW = "COMFY_AUTOGROW_V3"
DYNAMIC_COMBO = "COMFY_DYNAMICCOMBO_V3"
DYNAMIC_SLOT = "COMFY_DYNAMICSLOT_V3"
DYNAMIC_GROUP = "COMFY_DYNAMICGROUP_V3"

DEFAULT_MAX_COUNT = 100
"""How many parts an autogrow may have whose template does not say."""

DEFAULT_MAX_ROWS = 20
"""How many rows a group may have that does not say, and at most."""

Sections = Mapping[str, Mapping[str, Sequence[Any]]]
"""Declared inputs: section (`required`, `optional`) -> name -> [type, options]; the options may be missing."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One input as prompts name it, with dots. path: where its value is in what the node gets."""

    name: str
    type: Any
    options: Mapping[str, Any]
    section: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expansion:
    """What a declaration comes to for one submission.

    leaves: in order of declaration. dicts: paths that are a dict even if nothing is in them; lists: paths whose
    dict of numbers is a list for the node.
    """

    leaves: tuple[Leaf, ...]
    dicts: tuple[tuple[str, ...], ...] = ()
    lists: tuple[tuple[str, ...], ...] = ()


@dataclass(slots=True)
class _Growing:
    submitted: Mapping[str, Any]
    leaves: list[Leaf] = field(default_factory=list)
    dicts: list[tuple[str, ...]] = field(default_factory=list)
    lists: list[tuple[str, ...]] = field(default_factory=list)

    def has_any(self, path: tuple[str, ...]) -> bool:
        """Tell whether something was submitted at or below a dotted name."""
        name = ".".join(path)
        return any(key == name or key.startswith(f"{name}.") for key in self.submitted)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an input stands. optional: it or something around it may be missing."""

    path: tuple[str, ...]
    is_optional: bool

    def below(self, name: str, is_optional: bool = False) -> _Place:
        return _Place((*self.path, name), self.is_optional or is_optional)


def is_dynamic(input_type: Any) -> bool:
    """Tell whether a declared type is a container of inputs."""
    return isinstance(input_type, str) and input_type in _EXPANDERS


def has_dynamic(declared: Sections) -> bool:
    """Tell whether a declaration has a container of inputs at its top level."""
    return any(
        is_dynamic(entry[0])
        for section in ("required", "optional")
        for entry in declared.get(section, {}).values()
    )


def expand(declared: Sections, submitted: Mapping[str, Any]) -> Expansion:
    """List the inputs that a node has when `submitted` (name -> value, links included) is given to it.

    Of an autogrow or group the first `min` parts and those submitted exist; of a dynamic combo the parts of the
    submitted key, none if it is unknown (the combo itself is a leaf of type COMBO with the keys as choices).
    """
    growing = _Growing(submitted)
    _add_sections(growing, declared, _Place((), False))
    return Expansion(tuple(growing.leaves), tuple(growing.dicts), tuple(growing.lists))


def fold(
    values: Mapping[str, Any], expansion: Expansion, leaf_value: Callable[[Any, str], Any] | None = None
) -> dict[str, Any]:
    """Nest values by dotted name as the node expects them; names that are no leaf stay as they are.

    What was submitted under a container's own name, beside its parts, is left out.

    leaf_value: makes what stands for the value of a nested leaf from (value, submitted name); the value itself
    if None. `values` is unchanged.
    """
    nested = {leaf.name: leaf.path for leaf in expansion.leaves if len(leaf.path) > 1}
    containers = {".".join(path) for path in expansion.dicts}
    folded: dict[str, Any] = {}
    for path in expansion.dicts:
        _dict_at(folded, path)
    for name, value in values.items():
        if name in nested:
            *around, last = nested[name]
            _dict_at(folded, around)[last] = leaf_value(value, name) if leaf_value else value
        elif name not in containers:
            folded[name] = value
    for path in sorted(expansion.lists, key=len, reverse=True):
        _make_list(folded, path)
    return folded


def _add_sections(growing: _Growing, declared: Sections, place: _Place) -> None:
    for section in ("required", "optional"):
        for name, entry in declared.get(section, {}).items():
            _add(growing, entry, place.below(name, section != "required"))


def _add(growing: _Growing, entry: Sequence[Any], place: _Place) -> None:
    kind, options = entry[0], entry[1] if len(entry) > 1 and entry[1] else {}
    expander = _EXPANDERS.get(kind) if isinstance(kind, str) else None
    if expander is None:
        _add_leaf(growing, (kind, options), place)
    else:
        expander(growing, options, place)


def _add_leaf(
    growing: _Growing, kind: tuple[Any, Mapping[str, Any]], place: _Place, *, is_own: bool = False
) -> None:
    """Add a leaf; is_own: it stands in its container's dict under the container's own name."""
    path = (*place.path, place.path[-1]) if is_own else place.path
    section = "optional" if place.is_optional else "required"
    growing.leaves.append(Leaf(".".join(place.path), kind[0], kind[1], section, path))


def _add_autogrow(growing: _Growing, options: Mapping[str, Any], place: _Place) -> None:
    template = options.get("template", {})
    entry, part_optional = _template_entry(template)
    least = int(template.get("min", 0))
    growing.dicts.append(place.path)
    for index, name in enumerate(_autogrow_names(template)):
        part = place.below(name, part_optional or index >= least)
        if index < least or growing.has_any(part.path):
            _add(growing, entry, part)


def _autogrow_names(template: Mapping[str, Any]) -> list[str]:
    if template.get("names") is not None:
        return [str(name) for name in template["names"]]
    count = int(template.get("max", DEFAULT_MAX_COUNT))
    return [f"{template.get('prefix', '')}{index}" for index in range(count)]


def _template_entry(template: Mapping[str, Any]) -> tuple[Sequence[Any], bool]:
    """Return the one input that a template repeats, and whether it is optional."""
    for section in ("required", "optional"):
        for entry in template.get("input", {}).get(section, {}).values():
            return entry, section == "optional"
    return ["*", {}], True


def _add_combo(growing: _Growing, options: Mapping[str, Any], place: _Place) -> None:
    choices = options.get("options", [])
    about = {**options, "options": [choice["key"] for choice in choices]}
    _add_leaf(growing, ("COMBO", about), place, is_own=True)
    key = growing.submitted.get(".".join(place.path))
    chosen = next((choice for choice in choices if choice["key"] == key), None)
    if chosen is not None:
        _add_sections(growing, chosen.get("inputs", {}), place)


def _add_slot(growing: _Growing, options: Mapping[str, Any], place: _Place) -> None:
    about = {key: value for key, value in options.items() if key not in ("slotType", "inputs")}
    _add_leaf(growing, (options.get("slotType", "*"), about), place, is_own=True)
    if ".".join(place.path) in growing.submitted:
        _add_sections(growing, options.get("inputs", {}), place)


def _add_group(growing: _Growing, options: Mapping[str, Any], place: _Place) -> None:
    least = int(options.get("min", 0))
    growing.dicts.append(place.path)
    growing.lists.append(place.path)
    for index in range(int(options.get("max", DEFAULT_MAX_ROWS))):
        part = place.below(str(index), index >= least)
        if index < least or growing.has_any(part.path):
            growing.dicts.append(part.path)
            _add_sections(growing, options.get("template", {}), part)


_EXPANDERS: Mapping[str, Callable[[_Growing, Mapping[str, Any], _Place], None]] = {
    AUTOGROW: _add_autogrow,
    DYNAMIC_COMBO: _add_combo,
    DYNAMIC_SLOT: _add_slot,
    DYNAMIC_GROUP: _add_group,
}


def _dict_at(root: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    for part in path:
        root = root.setdefault(part, {})
    return root


def _make_list(root: dict[str, Any], path: Sequence[str]) -> None:
    """Replace a dict of numbers by the list of its values in numeric order."""
    holder = _dict_at(root, path[:-1])
    rows = holder.get(path[-1])
    if isinstance(rows, dict):
        holder[path[-1]] = [rows[index] for index in sorted(rows, key=int)]
