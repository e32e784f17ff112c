"""Tell what a JSON value is: a prompt, or a workflow as the page saves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Kind = Literal["api", "ui"]
"""`api`: nodes by id, as in a prompt; `ui`: what the page saves."""


def is_saved_workflow(content: Any) -> bool:
    """Tell whether a value is a workflow as the page saves it."""
    return isinstance(content, Mapping) and isinstance(content.get("nodes"), list)


def kind_of(content: Any) -> Kind | None:
    """Tell what a JSON value is, None if it is neither."""
    if is_saved_workflow(content):
        return "ui"
    if isinstance(content, Mapping) and any(
        isinstance(node, Mapping) and "class_type" in node for node in content.values()
    ):
        return "api"
    return None
