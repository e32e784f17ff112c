"""Give saved widget values the names of their widgets.

The page believes positions, so positions come first: as this class would save them, then as foreign programs
did (without control modes), whichever fits the declared types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from comfyserverless.graph.workflows.widgets import (
    CONTROL_WORDS,
    DYNAMIC_COMBO,
    Widget,
    autogrown,
    branch_entries,
    entries_of,
    is_forced,
    is_growing,
    widget_of,
)

#: Widgets that the page adds to a class by itself: (after this input, then these names).
_PAGE_WIDGETS = {"CustomCombo": ("index", "option{}")}


def name_values(
    info: Mapping[str, Any], class_name: str, values: Any, named: Mapping[str, Any]
) -> dict[str, Any]:
    """Return widget name -> value of a node of a known class, in the order of its widgets.

    values: `widgets_values` (list, object or None); named: `widgets_values_named` (may be empty).
    Values that are not saved are the defaults of the class.
    """
    if isinstance(values, dict):
        return _by_name(info, values)
    if not isinstance(values, list):
        return _by_name(info, named)
    values = _without_sockets(info, values)
    best = _fitting(info, values)
    if best is None:
        return _by_name(info, named) if named else _walk(info, values, has_controls=True).named
    result = best.named
    if class_name in _PAGE_WIDGETS:
        result.update(_page_widgets(class_name, values[best.used :]))
    return result


def name_unknown(values: Any, named: Mapping[str, Any], widget_names: Iterable[str]) -> dict[str, Any]:
    """Return what can be told of the values of a class that is not known: by saved names, else by sockets."""
    if named:
        return {name: value for name, value in named.items() if not _is_control_name(name)}
    if isinstance(values, dict):
        return dict(values)
    names = list(widget_names)
    if not isinstance(values, list):
        return {}
    if len(values) != len(names):
        values = [value for value in values if value not in CONTROL_WORDS] if _all_hashable(values) else values
    return dict(zip(names, values, strict=False)) if len(values) == len(names) else {}


@dataclass(slots=True)
class _Walk:
    """Names given so far; fits: all values have the declared type; used: how many values were taken.

    has_controls: control modes are taken to be among the values.
    """

    named: dict[str, Any]
    has_controls: bool
    fits: bool = True
    used: int = 0


def _fitting(info: Mapping[str, Any], values: list[Any]) -> _Walk | None:
    """Return the first way of reading that fits, else the page's own if the count is right, else None."""
    usual = _walk(info, values, has_controls=True)
    if usual.fits:
        return usual
    plain = _walk(info, values, has_controls=False)
    if plain.fits:
        return plain
    return usual if usual.used <= len(values) else None


def _without_sockets(info: Mapping[str, Any], values: list[Any]) -> list[Any]:
    """Drop values of inputs that are sockets by declaration, if the count says that they were saved.

    As the page does: only inputs of the class itself count, not those of branches.
    """
    is_socket: list[bool] = []
    for name, entry in entries_of(info):
        widget = widget_of(name, entry)
        if widget is not None and widget.is_saved:
            is_socket += [False] * (2 if widget.has_control else 1)
        elif widget is None and is_forced(entry):
            is_socket.append(True)
    if len(is_socket) != len(values) or not any(is_socket):
        return values
    return [value for value, drops in zip(values, is_socket, strict=True) if not drops]


def _walk(info: Mapping[str, Any], values: list[Any], *, has_controls: bool) -> _Walk:
    walk = _Walk({}, has_controls)
    _take(entries_of(info), values, walk)
    return walk


def _take(entries: Iterator[tuple[str, Any]], values: list[Any], walk: _Walk) -> None:
    for name, entry in entries:
        if is_growing(entry):
            _take(autogrown(name, entry), values, walk)
            continue
        widget = widget_of(name, entry)
        if widget is None:
            continue
        value = _take_widget(widget, values, walk)
        if widget.kind == DYNAMIC_COMBO:
            _take(branch_entries(widget, value), values, walk)


def _take_widget(widget: Widget, values: list[Any], walk: _Walk) -> Any:
    value, is_given = widget.default, False
    if widget.is_saved:
        if walk.used < len(values):
            value = _loaded(widget, values[walk.used])
            is_given = value is not None or widget.kind not in ("COMBO", DYNAMIC_COMBO)
            walk.fits &= _fits(widget, value)
        walk.used += 1
        if walk.has_controls or not widget.has_control:
            controls = values[walk.used : walk.used + widget.extra] if widget.has_control else []
            walk.fits &= not controls or (isinstance(controls[0], str) and controls[0] in CONTROL_WORDS)
            walk.used += widget.extra
    if widget.is_sent and (value is not None or is_given):
        walk.named[widget.name] = value
    return value


def _loaded(widget: Widget, value: Any) -> Any:
    """Return what the page makes of a saved value: a combo without one shows its first choice."""
    return widget.default if value is None and widget.kind in ("COMBO", DYNAMIC_COMBO) else value


def _fits(widget: Widget, value: Any) -> bool:
    """Tell whether a value can be one of this widget; combos may hold files that are gone, so any text."""
    if value is None:
        return True
    match widget.kind:
        case "INT":
            return _is_number(value) and (isinstance(value, int) or value.is_integer())
        case "FLOAT":
            return _is_number(value)
        case "BOOLEAN":
            return isinstance(value, bool)
        case "STRING":
            return isinstance(value, str)
        case "COMBO":
            return isinstance(value, str | int | float | list)
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _by_name(info: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}

    def take(entries: Iterator[tuple[str, Any]]) -> None:
        for name, entry in entries:
            if is_growing(entry):
                take(autogrown(name, entry))
                continue
            widget = widget_of(name, entry)
            if widget is None or not widget.is_sent:
                continue
            value = saved.get(name, widget.default)
            if value is not None or name in saved:
                result[name] = value
            if widget.kind == DYNAMIC_COMBO:
                take(branch_entries(widget, value))

    take(entries_of(info))
    return result


def _page_widgets(class_name: str, rest: list[Any]) -> dict[str, Any]:
    first, pattern = _PAGE_WIDGETS[class_name]
    return {pattern.format(number) if number else first: value for number, value in enumerate(rest)}


def _is_control_name(name: str) -> bool:
    return name.split("#")[0].endswith("control_after_generate")


def _all_hashable(values: list[Any]) -> bool:
    return not any(isinstance(value, list | dict) for value in values)
