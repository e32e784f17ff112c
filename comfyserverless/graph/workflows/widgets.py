"""Say which widgets the page makes for a node class, in the order in which it saves their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CONTROL_WORDS = frozenset({"fixed", "increment", "decrement", "randomize", "increment-wrap"})
"""Values of the widget that says what happens to a number after it was queued."""

DYNAMIC_COMBO = "COMFY_DYNAMICCOMBO_V3"
AUTOGROW = "COMFY_AUTOGROW_V3"

WIDGET_TYPES = frozenset(
    {
        "INT",
        "FLOAT",
        "STRING",
        "BOOLEAN",
        "COMBO",
        "COLOR",
        "CURVE",
        "RANGE",
        "TEXTAREA",
        "MARKDOWN",
        "CHART",
        "GALLERIA",
        "IMAGECOMPARE",
        "BOUNDING_BOX",
        "BOUNDING_BOXES",
        "PAINTER",
        "COMPOSITOR",
        "VIDEO_EDIT",
        "COLORS",
        "RESOLUTION_PREVIEW",
        "LIGHT_INFO_PREVIEW",
        "AUDIO_UI",
        "AUDIO_RECORD",
        "WEBCAM",
        "LOAD_3D",
    }
)
"""Types of inputs that the page shows as widgets (frontend 1.58)."""

_UNSAVED = frozenset({"IMAGECOMPARE", "RESOLUTION_PREVIEW", "AUDIO_UI"})
_UNSENT = frozenset({"RESOLUTION_PREVIEW", "AUDIO_UI"})

#: Saved values after a widget that are no inputs.
_PARTS = {"BOUNDING_BOX": 4, "AUDIO_RECORD": 1}


@dataclass(frozen=True, slots=True)
class Widget:
    """One widget of a node.

    name: dotted below a dynamic combo; kind: what decides its form (INT, COMBO ...); extra: how many saved
    values follow it that are no inputs; has_control: these are control mode (and filter).
    """

    name: str
    kind: str
    options: Mapping[str, Any]
    extra: int = 0
    has_control: bool = False

    @property
    def is_saved(self) -> bool:
        """Tell whether the widget has a place among the saved values."""
        return self.kind not in _UNSAVED

    @property
    def is_sent(self) -> bool:
        """Tell whether the widget's value belongs into a prompt."""
        return self.kind not in _UNSENT

    @property
    def choices(self) -> list[Any] | None:
        """Return the choices of a combo, None if it is none or they are not known."""
        options = self.options.get("options")
        return options if self.kind == "COMBO" and isinstance(options, list) else None

    @property
    def default(self) -> Any:
        """Return what the page shows in a fresh widget."""
        if "default" in self.options:
            return self.options["default"]
        if self.kind in ("COMBO", DYNAMIC_COMBO):
            choices = branches(self) if self.kind == DYNAMIC_COMBO else self.choices
            takes_many = self.options.get("multi_select") or self.options.get("multiselect")
            return [] if takes_many else next(iter(choices or ()), None)
        return _EMPTY.get(self.kind)


_EMPTY: dict[str, Any] = {
    "INT": 0,
    "FLOAT": 0,
    "STRING": "",
    "BOOLEAN": False,
    "TEXTAREA": "",
    "MARKDOWN": "",
    "COLOR": "#000000",
    "CURVE": {"points": [[0, 0], [1, 1]], "interpolation": "monotone_cubic"},
    "RANGE": {"min": 0, "max": 1},
    "CHART": {},
    "GALLERIA": [],
    "IMAGECOMPARE": ["", ""],
    "BOUNDING_BOX": {"x": 0, "y": 0, "width": 512, "height": 512},
    "BOUNDING_BOXES": [],
    "COMPOSITOR": {},
    "COLORS": [],
    "LIGHT_INFO_PREVIEW": [],
    "AUDIO_RECORD": "",
    "WEBCAM": "",
    "VIDEO_EDIT": {
        "trim": {"start_time": 0, "duration": 0},
        "crop": {"x": 0, "y": 0, "width": 0, "height": 0},
    },
}


def entries_of(info: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (name, [type, options]) of the inputs of a class in the order in which the page makes them."""
    inputs, order = _mapping(info.get("input")), _mapping(info.get("input_order"))
    for section in ("required", "optional"):
        entries = _mapping(inputs.get(section))
        listed = [name for name in order.get(section) or () if name in entries]
        for name in (*listed, *(name for name in entries if name not in listed)):
            yield name, entries[name]


def is_forced(entry: Any) -> bool:
    """Tell whether an input is declared as a socket although its type may have a widget."""
    return isinstance(entry, list | tuple) and len(entry) > 1 and bool(_mapping(entry[1]).get("forceInput"))


def kind_and_options(entry: Any) -> tuple[Any, Mapping[str, Any]]:
    """Read a declaration [type, options]; old ones have the choices of a combo as type."""
    if not isinstance(entry, list | tuple) or not entry:
        return None, {}
    options = _mapping(entry[1] if len(entry) > 1 else None)
    kind = entry[0]
    if isinstance(kind, list):
        kind, options = "COMBO", {"options": kind, **options}
    return options.get("widgetType") or kind, options


def widget_of(name: str, entry: Any) -> Widget | None:
    """Return the widget of one input, None for a plain socket."""
    kind, options = kind_and_options(entry)
    if not isinstance(kind, str) or options.get("forceInput"):
        return None
    if kind not in WIDGET_TYPES and kind != DYNAMIC_COMBO:
        return None
    controls = _controls(name, kind, options)
    return Widget(name, kind, options, controls or _PARTS.get(kind, 0), controls > 0)


def has_upload(info: Mapping[str, Any]) -> bool:
    """Tell whether nodes of a class have a button to upload files, which has a place after all other values."""
    keys = ("image_upload", "video_upload", "animated_image_upload", "audio_upload")
    return any(
        isinstance(entry, list | tuple) and len(entry) > 1 and any(_mapping(entry[1]).get(key) for key in keys)
        for _, entry in entries_of(info)
    )


def is_growing(entry: Any) -> bool:
    """Tell whether an input is a group that grows with its links."""
    return isinstance(entry, list | tuple) and len(entry) > 0 and entry[0] == AUTOGROW


def autogrown(name: str, entry: Any) -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, [type, options]) of the inputs that a fresh growing group has."""
    template = _mapping(_mapping(entry[1] if len(entry) > 1 else None).get("template"))
    member = next((each for _, each in entries_of({"input": template.get("input")})), None)
    least = template.get("min")
    shown = (least if isinstance(least, int) else 0) + 1
    names = template.get("names")
    if not isinstance(names, list):
        most = template.get("max")
        shown = min(shown, most) if isinstance(most, int) else shown
        names = [f"{template.get('prefix', '')}{number}" for number in range(shown)]
    for each in names[:shown] if member is not None else ():
        yield f"{name}.{each}", member


def branches(widget: Widget) -> dict[Any, Mapping[str, Any]]:
    """Return choice -> inputs of a dynamic combo (shaped like a class's `input`)."""
    options = widget.options.get("options")
    listed = [each for each in options if isinstance(each, dict)] if isinstance(options, list) else []
    return {each.get("key"): _mapping(each.get("inputs")) for each in listed}


def branch_entries(widget: Widget, choice: Any) -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, [type, options]) of the inputs that a dynamic combo adds for a choice."""
    try:
        inputs = branches(widget).get(choice, {})
    except TypeError:  # a value that is no choice, like a list
        return
    for name, entry in entries_of({"input": inputs}):
        yield f"{widget.name}.{name}", entry


def _controls(name: str, kind: str, options: Mapping[str, Any]) -> int:
    """Count the saved values of the control after a widget; below a dynamic combo no name alone makes one."""
    control = options.get("control_after_generate")
    if kind == "COMBO" or (control and "." in name):
        return 2 if control else 0
    if kind not in ("INT", "FLOAT"):
        return 0
    is_seed = kind == "INT" and name in ("seed", "noise_seed")
    return int(bool(control) or (is_seed and control is not False))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
