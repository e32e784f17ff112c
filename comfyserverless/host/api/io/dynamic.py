"""Define inputs that take several types, and those that bring further inputs (see `core.dynamic_inputs`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from comfyserverless.core import dynamic_inputs
from comfyserverless.host.api.io.base import ComfyTypeI, ComfyTypeIO, Input, Output, WidgetInput, taking

_HEAD: dict[str, Any] = {"display_name": None, "optional": False, "tooltip": None, "lazy": None}
_TAIL: dict[str, Any] = {"extra_dict": None, "raw_link": None, "advanced": None}


def sections_of(inputs: Iterable[Input]) -> dict[str, dict[str, tuple[Any, dict[str, Any]]]]:
    """Return inputs in `/object_info`'s shape: section -> name -> (type, options)."""
    sections: dict[str, dict[str, tuple[Any, dict[str, Any]]]] = {}
    for each in inputs:
        section = "optional" if each.optional else "required"
        sections.setdefault(section, {})[each.id] = (each.get_io_type(), each.as_dict())
    return sections


class MultiTypeInput(Input):
    """An input that takes several types; given an input instead of an id, it has that one's widget too."""

    parameters = taking("id", "types", **_HEAD, **_TAIL)
    types: Sequence[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        given: Any = self.id
        self.input_override: Input | None = given if isinstance(given, Input) else None
        if self.input_override is not None:
            self._take_over(self.input_override)

    def _take_over(self, given: Input) -> None:
        self.id = given.id
        for name in ("display_name", "tooltip", "lazy", "extra_dict", "raw_link", "advanced"):
            if getattr(self, name) is None:
                setattr(self, name, getattr(given, name))
        self.optional = self.optional or given.optional

    @property
    def io_types(self) -> list[Any]:
        """Return the types, that of the widget first."""
        first = [] if self.input_override is None else [self.input_override.Parent]
        return [*first, *(kind for kind in self.types if kind not in first)]

    def get_io_type(self) -> str:
        """Return the types' names, with commas."""
        first = [] if self.input_override is None else [self.input_override.get_io_type()]
        names = dict.fromkeys([*first, *(str(kind.io_type) for kind in self.types)])
        return ",".join(names)

    def as_dict(self) -> dict[str, Any]:
        """Return the options of `/object_info`: those of the widget, and its name."""
        if self.input_override is None:
            return super().as_dict()
        widget = {"widgetType": self.input_override.get_io_type()}
        return {**self.input_override.as_dict(), **widget, **super().as_dict()}


class MultiType(ComfyTypeI, io_type="COMFY_MULTITYPED_V3"):
    """Several types."""

    Input = MultiTypeInput


class MatchTypeTemplate:
    """A type that is to be the same wherever the template is used. allowed_types: which it may be."""

    def __init__(self, template_id: str, allowed_types: Any = None) -> None:
        self.template_id = template_id
        allowed = [] if allowed_types is None else allowed_types
        self.allowed_types = list(allowed) if isinstance(allowed, list | tuple) else [allowed]

    def as_dict(self) -> dict[str, Any]:
        """Return the option `template`."""
        allowed = ",".join(str(kind.io_type) for kind in self.allowed_types)
        return {"template_id": self.template_id, "allowed_types": allowed or "*"}


class MatchTypeInput(Input):
    """An input of a template's type."""

    parameters = taking("id", "template", **_HEAD, **_TAIL)
    template: MatchTypeTemplate

    def as_dict(self) -> dict[str, Any]:
        """Return the options of `/object_info`."""
        return {**super().as_dict(), "template": self.template.as_dict()}


class MatchTypeOutput(Output):
    """An output of a template's type."""

    parameters = taking("template", id=None, display_name=None, tooltip=None, is_output_list=False)
    template: MatchTypeTemplate


class MatchType(ComfyTypeIO, io_type="COMFY_MATCHTYPE_V3"):
    """Whatever is connected, the same everywhere in the node."""

    Template = MatchTypeTemplate
    Input = MatchTypeInput
    Output = MatchTypeOutput


class DynamicInput(Input):
    """An input that brings further inputs."""

    def get_dynamic(self) -> list[Input]:
        """Return the inputs that it may bring."""
        return []

    def get_all(self) -> list[Input]:
        """Return this input and those within it."""
        return [self, *(inner for each in self.get_dynamic() for inner in each.get_all())]

    def validate(self) -> None:
        """Check the inputs within."""
        for each in self.get_dynamic():
            each.validate()


class _AutogrowTemplate:
    """One input that is repeated; see its subclasses. Raises ValueError for counts that make no sense."""

    def __init__(self, repeated: Input, least: int) -> None:
        if isinstance(repeated, DynamicInput) and not isinstance(repeated, DynamicComboInput):
            raise ValueError("what an Autogrow repeats cannot be an Autogrow or a slot")
        self.input = repeated
        self.min = least
        if isinstance(repeated, WidgetInput):
            repeated.force_input = True

    def get_all(self) -> list[Input]:
        """Return the repeated input and those within it."""
        return self.input.get_all()

    def validate(self) -> None:
        """Check the repeated input."""
        self.input.validate()

    def as_dict(self) -> dict[str, Any]:
        """Return the option `template`."""
        return {"input": sections_of([self.input])}


class TemplatePrefix(_AutogrowTemplate):
    """An input that is repeated as prefix0, prefix1, ... min to max times."""

    def __init__(self, input: Input, prefix: str, min: int = 1, max: int = 10) -> None:
        if not prefix or min < 0 or max < 1 or max < min or max > dynamic_inputs.DEFAULT_MAX_COUNT:
            raise ValueError(f"an Autogrow of prefix {prefix!r} cannot have {min} to {max} inputs")
        super().__init__(input, min)
        self.prefix = prefix
        self.max = max

    @property
    def names(self) -> list[str]:
        """Return the names that inputs can have."""
        return [f"{self.prefix}{index}" for index in range(self.max)]

    def as_dict(self) -> dict[str, Any]:
        """Return the option `template`."""
        return {**super().as_dict(), "prefix": self.prefix, "min": self.min, "max": self.max}


class TemplateNames(_AutogrowTemplate):
    """An input that is repeated under given names; the first min are needed."""

    def __init__(self, input: Input, names: list[str], min: int = 1) -> None:
        if not names or min < 0 or len(names) > dynamic_inputs.DEFAULT_MAX_COUNT:
            raise ValueError(f"an Autogrow cannot have {len(names)} names and {min} of them needed")
        super().__init__(input, min)
        self.names = list(names)

    def as_dict(self) -> dict[str, Any]:
        """Return the option `template`."""
        return {**super().as_dict(), "names": self.names, "min": self.min}


class AutogrowInput(DynamicInput):
    """An input that is repeated as often as it is connected; the node gets a dict."""

    parameters = taking("id", "template", **_HEAD, **_TAIL)
    template: _AutogrowTemplate

    def get_dynamic(self) -> list[Input]:
        """Return the repeated input."""
        return [self.template.input]

    def as_dict(self) -> dict[str, Any]:
        """Return the options of `/object_info`."""
        return {**super().as_dict(), "template": self.template.as_dict()}


class Autogrow(ComfyTypeI, io_type=dynamic_inputs.AUTOGROW):
    """As many inputs as are connected."""

    Type = dict[str, Any]
    Input = AutogrowInput
    TemplatePrefix = TemplatePrefix
    TemplateNames = TemplateNames
    _AutogrowTemplate = _AutogrowTemplate


class Option:
    """One choice of a dynamic combo, with the inputs that it brings."""

    def __init__(self, key: str, inputs: list[Input]) -> None:
        self.key = key
        self.inputs = list(inputs)

    def as_dict(self) -> dict[str, Any]:
        """Return the choice as `/object_info` has it."""
        return {"key": self.key, "inputs": sections_of(self.inputs)}


class DynamicComboInput(DynamicInput):
    """A choice that brings inputs; the node gets a dict with the key under the input's own id."""

    parameters = taking("id", "options", **_HEAD, **_TAIL)
    options: list[Option]

    def get_dynamic(self) -> list[Input]:
        """Return the inputs of all choices."""
        return [each for option in self.options for each in option.inputs]

    def as_dict(self) -> dict[str, Any]:
        """Return the options of `/object_info`."""
        return {**super().as_dict(), "options": [option.as_dict() for option in self.options]}


class DynamicCombo(ComfyTypeI, io_type=dynamic_inputs.DYNAMIC_COMBO):
    """A choice that brings inputs."""

    Type = dict[str, Any]
    Option = Option
    Input = DynamicComboInput


class DynamicSlotInput(DynamicInput):
    """An input that brings others once it is connected. slot: what is connected; its id names the whole."""

    parameters = taking(
        "slot",
        "inputs",
        display_name=None,
        tooltip=None,
        lazy=None,
        extra_dict=None,
        raw_link=None,
        advanced=None,
    )
    slot: Input
    inputs: list[Input]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.id = self.slot.id
        self.optional = True
        if isinstance(self.slot, WidgetInput):
            self.slot.force_input = True

    def get_dynamic(self) -> list[Input]:
        """Return what it brings."""
        return self.inputs

    def as_dict(self) -> dict[str, Any]:
        """Return the options of `/object_info`."""
        mine = {"slotType": self.slot.get_io_type(), "inputs": sections_of(self.inputs), "forceInput": True}
        return {**self.slot.as_dict(), **super().as_dict(), **mine}


class DynamicSlot(ComfyTypeI, io_type=dynamic_inputs.DYNAMIC_SLOT):
    """A connection that brings inputs."""

    Type = dict[str, Any]
    Input = DynamicSlotInput


class DynamicGroupInput(DynamicInput):
    """Rows of inputs, min to max of them; the node gets a list of dicts. template: the inputs of a row."""

    parameters = taking(
        "id", "template", **_HEAD, min=0, max=dynamic_inputs.DEFAULT_MAX_ROWS, group_name=None, **_TAIL
    )
    renamed: ClassVar[Mapping[str, str]] = {"inputs": "template"}
    template: list[Input]
    group_name: str | None

    def get_dynamic(self) -> list[Input]:
        """Return the inputs of a row."""
        return self.template

    def as_dict(self) -> dict[str, Any]:
        """Return the options of `/object_info`."""
        name = {} if self.group_name is None else {"group_name": self.group_name}
        return {**super().as_dict(), "template": sections_of(self.template), **name}


class DynamicGroup(ComfyTypeI, io_type=dynamic_inputs.DYNAMIC_GROUP):
    """Rows of inputs."""

    Type = list[dict[str, Any]]
    Input = DynamicGroupInput
