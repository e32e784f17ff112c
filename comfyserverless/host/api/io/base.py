"""Define what types, inputs and outputs of a schema have in common.

A type is a class (`Image`) with an `io_type` ("IMAGE") and two classes in it, `Image.Input` and `Image.Output`,
which know the type they belong to. Constructors take what their class lists in `parameters`, in that order; a
setting that no list knows (of a later ComfyUI) is ignored with a warning, so that its pack still loads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, ClassVar, TypeVar

log = logging.getLogger(__name__)

Cls = TypeVar("Cls", bound=type)

REQUIRED: Any = object()
"""Marks a parameter without a default."""

OPTION_KEYS: Mapping[str, str] = dict(
    (
        *((name, name) for name in ("display_name", "tooltip", "lazy", "advanced")),
        ("raw_link", "rawLink"),
        *((name, name) for name in ("default", "socketless")),
        ("widget_type", "widgetType"),
        ("force_input", "forceInput"),
        *((name, name) for name in ("min", "max", "step", "round", "gradient_stops")),
        ("display_mode", "display"),
        *((name, name) for name in ("multiline", "placeholder", "label_on", "label_off")),
        ("dynamic_prompts", "dynamicPrompts"),
        *((name, name) for name in ("multiselect", "multi_select", "options", "control_after_generate")),
        *((name, name) for name in ("image_folder", "remote", "chip")),
    )
)
"""What an attribute of an input is called among the options of `/object_info`, in their order."""


def taking(*names: str, **defaults: Any) -> dict[str, Any]:
    """List the parameters of a constructor: those without a default first."""
    return {**dict.fromkeys(names, REQUIRED), **defaults}


class Described:
    """Take constructor arguments as the class lists them and keep them as attributes of the same names."""

    parameters: ClassVar[Mapping[str, Any]] = {}
    renamed: ClassVar[Mapping[str, str]] = {}
    """Other words for a parameter that packs may use."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        for name, value in self._bound(args, kwargs).items():
            setattr(self, name, value)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Match arguments with parameters. Raises TypeError as Python does for a call that does not fit."""
        names = list(self.parameters)
        title = type(self).__qualname__
        if len(args) > len(names):
            raise TypeError(f"{title} takes {len(names)} arguments, not {len(args)}")
        bound = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            known = self.renamed.get(name, name)
            if known in bound:
                raise TypeError(f"{title} got several values for '{known}'")
            if known not in self.parameters:
                log.warning("%s(%r): the setting %s is unknown here and is ignored", title, args[:1], name)
                continue
            bound[known] = value
        full = {name: bound.get(name, default) for name, default in self.parameters.items()}
        missing = [name for name, value in full.items() if value is REQUIRED]
        if missing:
            raise TypeError(f"{title} is missing {', '.join(repr(name) for name in missing)}")
        return full


class Input(Described):
    """One declared input. id: the name of the argument and of the key in prompts."""

    io_type: Any = "*"
    Parent: ClassVar[Any] = None
    parameters = taking(
        "id",
        display_name=None,
        optional=False,
        tooltip=None,
        lazy=None,
        extra_dict=None,
        raw_link=None,
        advanced=None,
    )
    id: str
    display_name: str | None
    optional: bool
    tooltip: str | None
    lazy: bool | None
    extra_dict: dict[str, Any] | None
    raw_link: bool | None
    advanced: bool | None

    @property
    def rawLink(self) -> bool | None:
        """Return whether the node gets the link itself."""
        return self.raw_link

    def get_io_type(self) -> Any:
        """Return the type's name as `/object_info` has it; a text, perhaps of a class of the pack's own."""
        return self.io_type

    def as_dict(self) -> dict[str, Any]:
        """Return the options of `/object_info`: those that were set."""
        given = vars(self)
        options = {key: plain(given[name]) for name, key in OPTION_KEYS.items() if given.get(name) is not None}
        return {**options, **(self.extra_dict or {})}

    def get_all(self) -> list[Input]:
        """Return this input and those within it."""
        return [self]

    def validate(self) -> None:
        """Raise ValueError if the declaration makes no sense."""


class WidgetInput(Input):
    """An input with a widget: it may be given as a literal. force_input: it has a socket only."""

    parameters = taking(
        "id",
        display_name=None,
        optional=False,
        tooltip=None,
        lazy=None,
        default=None,
        socketless=None,
        widget_type=None,
        force_input=None,
        extra_dict=None,
        raw_link=None,
        advanced=None,
    )
    default: Any
    socketless: bool | None
    widget_type: str | None
    force_input: bool | None


class Output(Described):
    """One declared output; without an id the schema gives it one."""

    io_type: Any = "*"
    Parent: ClassVar[Any] = None
    parameters = taking(id=None, display_name=None, tooltip=None, is_output_list=False)
    id: str | None
    display_name: str | None
    tooltip: str | None
    is_output_list: bool

    def get_io_type(self) -> Any:
        """Return the type as `/object_info` has it: a name, or the choices of a combo."""
        return self.io_type

    def as_dict(self) -> dict[str, Any]:
        """Return what was set, by name."""
        known = {
            "display_name": self.display_name,
            "tooltip": self.tooltip,
            "is_output_list": self.is_output_list,
        }
        return {key: value for key, value in known.items() if value is not None}

    def validate(self) -> None:
        """Raise ValueError if the declaration makes no sense."""


class ComfyType:
    """A type of values; a subclass names it with `io_type`, by the class argument or by `comfytype`."""

    io_type: ClassVar[Any] = "*"
    Type: ClassVar[Any] = Any
    Input: ClassVar[type[Any]] = Input
    Output: ClassVar[type[Any]] = Output

    def __init_subclass__(cls, io_type: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if io_type is not None:
            cls.io_type = io_type
        _own_ends(cls)


def _own_ends(cls: Any) -> None:
    """Give a type an `Input` and an `Output` that know it, made from those that it has or inherits."""
    for name in ("Input", "Output"):
        end = getattr(cls, name)
        own = type(name, (end,), {"Parent": cls, "io_type": cls.io_type, "__module__": cls.__module__})
        own.__qualname__ = f"{cls.__name__}.{name}"
        setattr(cls, name, own)


class ComfyTypeI(ComfyType):
    """A type that is used for inputs only."""


class ComfyTypeIO(ComfyTypeI):
    """A type that is used for inputs and outputs."""


def comfytype(io_type: str, **kwargs: Any) -> Callable[[Cls], Cls]:
    """Name the type that the decorated class stands for."""

    def decorate(cls: Cls) -> Cls:
        named: Any = cls
        named.io_type = io_type
        for name, value in kwargs.items():
            setattr(named, name, value)
        _own_ends(named)
        return cls

    return decorate


def plain(value: Any) -> Any:
    """Return a setting as JSON has it: enumerations as their values, settings objects as dicts."""
    if type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    as_dict = getattr(value, "as_dict", None)
    return as_dict() if callable(as_dict) else value
