"""Make a Python class for every built-in node class: what packs look up, instantiate, call and subclass.

Methods run the node on the workers and return a tuple. What the class says of itself (`INPUT_TYPES` ...) comes
from the server, choices of files as they are at the moment.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from comfyserverless.host.bridge import bridge
from comfyserverless.host.library.absent import absent_inputs
from comfyserverless.host.library.calls import run_node
from comfyserverless.host.library.methods import EXECUTE, METHODS

_logger = logging.getLogger(__name__)

Entry = Mapping[str, Any]
_SECTIONS = ("required", "optional")


class Result(tuple[Any, ...]):
    """The outputs of a node: a tuple, that can be asked like newer versions' `NodeOutput`, too."""

    __slots__ = ()

    @property
    def result(self) -> tuple[Any, ...]:
        """Return the outputs."""
        return tuple(self)

    args = result


def entries() -> dict[str, Entry]:
    """Return what the server says of all its classes; nothing where no server can be asked."""
    try:
        return dict(bridge().ask("object_info", {"class_type": None}))
    except RuntimeError as exc:
        _logger.warning("built-in nodes are known by name only: %s", exc)
        return {}


class BuiltinNode:
    """The base of the classes; entry: what the server said when packs were loaded."""

    class_type: ClassVar[str] = ""
    entry: ClassVar[Entry] = {}
    RETURN_TYPES: ClassVar[tuple[Any, ...]] = ()
    FUNCTION: ClassVar[str] = EXECUTE
    CATEGORY: ClassVar[str] = ""
    OUTPUT_NODE: ClassVar[bool] = False

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        """Return the declared inputs, with the choices of the moment."""
        if not cls.entry:
            return {"required": absent_inputs(cls.class_type)}
        sections = bridge().ask("object_info", {"class_type": cls.class_type}).get("input", {"required": {}})
        return {
            section: {name: tuple(spec) if isinstance(spec, list) else spec for name, spec in inputs.items()}
            for section, inputs in sections.items()
        }

    @classmethod
    def execute(cls, *args: Any, **kwargs: Any) -> Result:
        """Run the node; parameters by name, or in the order of the class's method."""
        return Result(run_node(cls.class_type, **cls.bound(args, kwargs)))

    @classmethod
    def bound(cls, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs by name; what is not given has its declared default, as methods' parameters have.

        Raises TypeError for too many or doubled parameters.
        """
        order = METHODS.get(cls.class_type, (EXECUTE, ()))[1] or tuple(_declared(cls.entry))
        if len(args) > len(order):
            raise TypeError(f"{cls.class_type} takes {len(order)} inputs, but {len(args)} were given")
        given = dict(zip(order, args, strict=False))
        doubled = given.keys() & kwargs.keys()
        if doubled:
            raise TypeError(f"{cls.class_type} got several values for {', '.join(sorted(doubled))}")
        return {**_defaults(cls.entry), **given, **kwargs}


def _declared(entry: Entry) -> dict[str, Any]:
    sections = entry.get("input", {})
    return {name: spec for section in _SECTIONS for name, spec in sections.get(section, {}).items()}


def _defaults(entry: Entry) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, spec in _declared(entry).items():
        options = spec[1] if len(spec) > 1 else {}
        choices = spec[0] if isinstance(spec[0], list) else options.get("options")
        if "default" in options:
            found[name] = options["default"]
        elif choices:
            found[name] = choices[0]
    return found


def make_class(name: str, entry: Entry, base: type = BuiltinNode) -> type:
    """Return the class of a node; base: one of ours that runs here, or that of all others."""
    method = METHODS.get(name, (EXECUTE, ()))[0]
    fields: dict[str, Any] = {
        "class_type": name,
        "entry": entry,
        "FUNCTION": method,
        "__module__": entry.get("python_module") or "nodes",
        "__doc__": entry.get("description") or f"ComfyUI's {name}.",
        "CATEGORY": entry.get("category", ""),
        "OUTPUT_NODE": bool(entry.get("output_node", False)),
        "RELATIVE_PYTHON_MODULE": entry.get("python_module") or "nodes",
    }
    if "output" in entry:
        fields["RETURN_TYPES"] = tuple(entry["output"])
        fields["RETURN_NAMES"] = tuple(entry["output_name"])
        fields["OUTPUT_IS_LIST"] = tuple(entry["output_is_list"])
    if method != EXECUTE and not hasattr(base, method):
        fields[method] = _method(name, method)
    return type(name, (base,), fields)


def _method(name: str, method: str) -> Callable[..., Result]:
    """Return the method of a class: it takes an object, as packs make one, or is called on the class."""

    @functools.wraps(BuiltinNode.execute)
    def call(self: Any, *args: Any, **kwargs: Any) -> Result:
        result: Result = type(self).execute(*args, **kwargs)
        return result

    call.__name__, call.__qualname__ = method, f"{name}.{method}"
    return call
