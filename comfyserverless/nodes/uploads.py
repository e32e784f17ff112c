"""Check and identify uploaded files that an input names (`a.png`, `a.png [output]`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfyserverless.graph.declaration import ChangeToken, FileCatalog, InputCheck


def upload_check(name: str, kind: str) -> InputCheck:
    """Return a check that the input `name` names an existing file; kind is for the message (`image`)."""

    def check(catalog: FileCatalog, values: Mapping[str, Any]) -> Mapping[str, str]:
        value = values.get(name)
        if value is None or _exists(catalog, value):  # None: the input is linked, or missing
            return {}
        return {name: f"Invalid {kind} file: {value}"}

    return check


def upload_token(name: str) -> ChangeToken:
    """Return a change token of the file that the input `name` names: its path, size and time."""

    def token(catalog: FileCatalog, values: Mapping[str, Any]) -> Any:
        value = values.get(name)
        return catalog.input_identity(value) if isinstance(value, str) else None

    return token


def _exists(catalog: FileCatalog, value: Any) -> bool:
    try:
        return isinstance(value, str) and catalog.has_input(value)
    except ValueError:  # a text that no file system takes, such as a lone surrogate
        return False
