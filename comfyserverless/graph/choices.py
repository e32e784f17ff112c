"""Resolve what a combo offers at this moment, and show an input's declaration as ComfyUI's pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from comfyserverless.graph.declaration import FileCatalog, FileChoices, InputChoices, InputSpec
from comfyserverless.graph.jsonsafe import json_safe


class Choices:
    """Answer for one request what combos offer; each folder is listed once."""

    def __init__(self, catalog: FileCatalog) -> None:
        self._catalog = catalog
        #: Answers of the catalog so far, and their texts as a set.
        self._offers: dict[FileChoices | InputChoices, list[str]] = {}
        self._sets: dict[FileChoices | InputChoices, frozenset[str]] = {}

    def of(self, spec: InputSpec) -> Sequence[Any] | None:
        """Return the choices of a combo in order, None if the input is not a combo with known choices."""
        kind = spec.type
        if isinstance(kind, tuple):
            return kind
        if isinstance(kind, FileChoices | InputChoices):
            return self._list(kind)
        if kind == "COMBO":
            options = spec.options.get("options")
            return options if isinstance(options, list | tuple) else None
        return None

    def offers(self, spec: InputSpec, value: Any) -> bool:
        """Tell whether a combo offers a value, by equality (1 equals 1.0); true if it is not a combo."""
        kind = spec.type
        if isinstance(kind, FileChoices | InputChoices):
            if kind not in self._sets:
                self._sets[kind] = frozenset(self._list(kind))
            return isinstance(value, str) and value in self._sets[kind]
        choices = self.of(spec)
        return choices is None or value in choices

    def config(self, spec: InputSpec) -> list[Any]:
        """Return the pair [type, options] of an input.

        The type of a combo is the list of its choices; newer classes, whose options say `multiselect`, have
        `COMBO` there and the choices among the options.
        """
        kind, options = spec.type, json_safe(spec.options)
        if isinstance(kind, str):
            return [kind, options]
        choices = list(self.of(spec) or ())
        return ["COMBO", {**options, "options": choices}] if "multiselect" in options else [choices, options]

    def _list(self, kind: FileChoices | InputChoices) -> list[str]:
        known = self._offers.get(kind)
        if known is None:
            known = self._offers[kind] = self._read(kind)
        return known

    def _read(self, kind: FileChoices | InputChoices) -> list[str]:
        if isinstance(kind, InputChoices):
            return self._catalog.input_names(kind.content)
        names = self._catalog.names(kind.folder)
        return names if kind.more is None else [*names, *kind.more(self._catalog)]
