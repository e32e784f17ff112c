"""Tell packs about the built-in node classes, which they look up in `nodes.NODE_CLASS_MAPPINGS`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfyserverless.control.context import NodeContext
from comfyserverless.control.files import FolderPaths
from comfyserverless.graph.choices import Choices
from comfyserverless.graph.lowering import LoweringContext
from comfyserverless.graph.object_info import describe_with
from comfyserverless.nodes.registry import BUILTIN


class BuiltinInfo:
    """Answer `object_info` requests. files: those that classes offer outside of a prompt."""

    def __init__(self, files: FolderPaths) -> None:
        self._files = files

    def answer(self, context: LoweringContext | None, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry of the class that `class_type` names, {} if there is none; None: of all, by name.

        Choices of files are those of the tenant whose node asks.
        """
        wanted = payload.get("class_type")
        choices = Choices(context.files if isinstance(context, NodeContext) else self._files)
        if wanted is None:
            return {name: _entry(name, choices) for name in BUILTIN.names()}
        return _entry(str(wanted), choices)


def _entry(name: str, choices: Choices) -> dict[str, Any]:
    declaration = BUILTIN.get(name)
    return {} if declaration is None else plain(describe_with(declaration, choices))


def plain(value: Any) -> Any:
    """Return an entry as a value tree: mappings as dicts, sequences as lists."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value
